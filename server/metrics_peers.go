package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/server/peer"
)

// peerMetrics tell of the lines to other members; all are 0 on a node that is
// alone.
func peerMetrics(node *Node) []prometheus.Collector {
	name := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "holdfast", Subsystem: "peer", Name: name, Help: help}
	}
	count := func(n, help string, read func(peer.Stats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts(name(n, help)), func() float64 { return float64(read(node.PeerStats())) })
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(name("members_reached", "Other members to which a line stands.")),
			func() float64 { return float64(node.PeerStats().Reached) }),
		count("messages_dropped_total", "Messages to other members that were dropped: no line stood, or too much waited.", func(s peer.Stats) uint64 { return s.Dropped }),
		count("snapshots_sent_total", "Snapshots that another member has taken from this one.", func(s peer.Stats) uint64 { return s.SnapshotsSent }),
		count("snapshots_failed_total", "Snapshots to other members whose transfer failed.", func(s peer.Stats) uint64 { return s.SnapshotsFailed }),
		count("snapshots_received_total", "Snapshots that came from other members.", func(s peer.Stats) uint64 { return s.SnapshotsTaken }),
	}
}
