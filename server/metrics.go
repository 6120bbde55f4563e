package server

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/server/core"
)

// metrics are those of the calls and of what the log tells. The node has its
// own; all are in one registry of the server's, never in the default one.
type metrics struct {
	calls      *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	events     *prometheus.CounterVec
	audits     *prometheus.CounterVec
	denied     prometheus.Counter
	unrecorded prometheus.Counter
	refusals   prometheus.Counter
	ahead      prometheus.Counter
	takeovers  prometheus.Counter
	relayed    prometheus.Counter
	waiting    prometheus.Gauge
	watchers   prometheus.Gauge
	streams    prometheus.Gauge
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "holdfast", Name: name, Help: help})
}

func newMetrics() *metrics {
	return &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "holdfast", Subsystem: "api", Name: "calls_total",
			Help: "Calls that ended, by method and result: ok, or the kind of the error.",
		}, []string{"method", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Subsystem: "api", Name: "call_duration_seconds",
			Help:    "Time in unary calls, waiting for a lock included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18),
		}, []string{"method"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "holdfast", Name: "events_total",
			Help: "Events of the log since this process started, by kind (granted, released, queued, …) and cause.",
		}, []string{"kind", "cause"}),
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "holdfast", Name: "operator_calls_total",
			Help: "Operator calls, by call and outcome; each has a line in this node's log, and a record in the replicated one (denied ones at most once a minute).",
		}, []string{"call", "outcome"}),
		denied:     counter("secret_refusals_total", "Calls with a wrong secret for a session."),
		unrecorded: counter("audit_records_lost_total", "Operator calls whose record did not get into the replicated log."),
		refusals:   counter("gate_refusals_total", "Refused tokens that gates reported."),
		ahead:      counter("gate_refusals_ahead_total", "Reports of a token above every number ever minted here: the domain was forked."),
		takeovers:  counter("stream_takeovers_total", "Streams closed because another client process attached with a session's secret."),
		relayed:    counter("api_calls_relayed_total", "Calls that this member passed on to the leader."),
		waiting:    gauge("api_acquires_waiting", "Unary acquires that wait here now."),
		watchers:   gauge("watchers", "Watch streams, of both kinds, that are open now."),
		streams:    gauge("streams", "Session streams that are open now."),
	}
}

// register puts all metrics into r, with those that are read from the node.
// unregister takes them out again.
func (m *metrics) register(r prometheus.Registerer, node *Node, v *voices) (unregister func(), err error) {
	of := func(name, help string, read func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "holdfast", Name: name, Help: help},
			func() float64 { return read(node.Status()) })
	}
	is := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	all := []prometheus.Collector{
		m.calls, m.seconds, m.events, m.audits, m.denied, m.unrecorded, m.refusals, m.ahead, m.takeovers, m.relayed,
		m.waiting, m.watchers, m.streams,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "holdfast", Name: "sessions_attached", Help: "Sessions for which a stream to this node speaks."},
			func() float64 { return float64(v.count()) }),
		of("revision", "The revision that this node has applied.", func(s Status) float64 { return float64(s.Revision) }),
		of("ready", "1 if this node can serve.", func(s Status) float64 { return is(s.Ready) }),
		of("has_leader", "1 if this node knows who leads.", func(s Status) float64 { return is(s.LeaderID != 0) }),
	}
	all = append(all, peerMetrics(node)...)
	var in []prometheus.Collector
	unregister = func() {
		for _, c := range in {
			r.Unregister(c)
		}
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			unregister()
			return nil, err
		}
		in = append(in, c)
	}
	return unregister, nil
}

// call counts one call that ended. A duration of 0 is not observed: streams
// last as long as they like.
func (m *metrics) call(procedure, result string, took time.Duration) {
	method := path.Base(procedure)
	m.calls.WithLabelValues(method, result).Inc()
	if took > 0 {
		m.seconds.WithLabelValues(method).Observe(took.Seconds())
	}
}

// tally follows the log until the node ends: it counts events, and forgets
// whose voice an ended session had.
func (s *service) tally(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := s.node.Watch(s.node.Status().Revision)
		for err == nil {
			var events []core.Event
			if events, _, err = w.Next(ctx); err != nil {
				break
			}
			for i := range events {
				e := &events[i]
				s.metrics.events.WithLabelValues(eventKinds[e.Kind], causes[e.Cause]).Inc()
				if e.Kind == core.EventEnded {
					s.voices.drop(e.Session)
				}
			}
		}
		if !errors.Is(err, ErrCompacted) {
			return
		}
	}
}
