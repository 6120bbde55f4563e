package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// nodeMetrics are what a node counts. All are kept even without a Registerer.
type nodeMetrics struct {
	to prometheus.Registerer

	leader    prometheus.Gauge
	applied   prometheus.Gauge
	sessions  prometheus.Gauge
	locks     prometheus.Gauge
	free      prometheus.Gauge
	entries   prometheus.Counter
	commands  prometheus.Counter
	refused   prometheus.Counter
	expired   prometheus.Counter
	snapshots prometheus.Counter
	writes    prometheus.Histogram
	turns     prometheus.Histogram
	overdue   prometheus.Gauge
	// steps of a snapshot; steps are encode and write.
	steps *prometheus.HistogramVec
}

// The steps of a snapshot.
const (
	stepEncode = "encode"
	stepWrite  = "write"
)

func newNodeMetrics(to prometheus.Registerer) (*nodeMetrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "holdfast", Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Name: name, Help: help})
	}
	m := &nodeMetrics{
		leader:    gauge("is_leader", "1 if this node leads, else 0."),
		applied:   gauge("applied_index", "Index of the last applied log entry."),
		sessions:  gauge("sessions", "Sessions that are open."),
		locks:     gauge("locks", "Locks that are held, queued, closed or have a value."),
		free:      gauge("disk_free_bytes", "Free space in the data directory's file system."),
		entries:   counter("log_entries_total", "Entries that this node proposed."),
		commands:  counter("log_commands_total", "Commands in these entries."),
		refused:   counter("requests_refused_total", "Requests turned away because the node was busy, or short of space or sessions."),
		expired:   counter("sessions_expired_total", "Sessions that ended because their client was silent."),
		snapshots: counter("snapshots_total", "Snapshots of its state that this node wrote."),
		writes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "holdfast", Name: "log_write_duration_seconds", Help: "Time to write and sync one batch of the log.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		turns: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "holdfast", Name: "loop_turn_duration_seconds", Help: "Time of one turn of the node's loop; nothing is applied or answered while one lasts.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}),
		overdue: gauge("sessions_overdue", "Sessions that are past their deadline by more than their TTL, and do not end."),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Name: "snapshot_duration_seconds", Help: "Time of the steps of a snapshot: encode it, beside all else, and write it to the disk.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"step"}),
	}
	m.steps.WithLabelValues(stepEncode)
	m.steps.WithLabelValues(stepWrite)
	if to == nil {
		return m, nil
	}
	m.to = to
	for _, c := range m.all() {
		if err := to.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("server: registering the node's metrics: %w: give each node a Registerer of its own", err)
		}
	}
	return m, nil
}

func (m *nodeMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.leader, m.applied, m.sessions, m.locks, m.free, m.entries, m.commands, m.refused, m.expired, m.snapshots, m.writes, m.turns, m.overdue, m.steps}
}

func (m *nodeMetrics) unregister() {
	if m.to == nil {
		return
	}
	for _, c := range m.all() {
		m.to.Unregister(c)
	}
}

// show takes over what a status says.
func (m *nodeMetrics) show(s Status) {
	leader := 0.0
	if s.Role == "leader" {
		leader = 1
	}
	m.leader.Set(leader)
	m.applied.Set(float64(s.Applied))
	m.sessions.Set(float64(s.Sessions))
	m.locks.Set(float64(s.Locks))
}
