package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"holdfast/elect"
)

// healthJSON is what the probes answer. Field names are stable.
type healthJSON struct {
	Election    string `json:"election"`
	Standing    bool   `json:"standing"` // in office or in the queue
	Primary     bool   `json:"primary"`
	State       string `json:"state"`
	StateMS     int64  `json:"state_ms"`         // how long
	OutMS       int64  `json:"out_ms,omitempty"` // how long neither in office nor in the queue
	Why         string `json:"why,omitempty"`    // it does not stand
	TokenNumber string `json:"token_number,omitempty"`
	Offices     string `json:"offices"` // times in office so far
}

// serveHealth answers probes until the process ends. Nothing that a prober
// does holds a candidate up.
func (r *electRun) serveHealth(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return withCode(exitFailure, fmt.Errorf("--health-listen: %w", err))
	}
	mux := http.NewServeMux()
	answer := func(ok func(elect.Standing, error) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			s, err := r.standing()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			if !ok(s, err) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_ = printJSON(w, toHealthJSON(r.name, s))
		}
	}
	mux.HandleFunc("GET /standing", answer(func(_ elect.Standing, err error) bool { return err == nil }))
	mux.HandleFunc("GET /primary", answer(func(s elect.Standing, _ error) bool { return s.State == elect.InOffice }))
	srv := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.tell.say("--health-listen: %v", err)
		}
	}()
	r.tell.say("probes are answered at http://%s/standing and /primary", l.Addr())
	return nil
}

func toHealthJSON(name string, s elect.Standing) healthJSON {
	out := healthJSON{
		Election: name, Standing: s.Stands(), Primary: s.State == elect.InOffice, State: s.State.String(),
		StateMS: millis(s.For), OutMS: millis(s.Out), Offices: number(s.Offices),
	}
	if s.Why != nil {
		out.Why = plainText(s.Why)
	}
	if !s.Token.IsZero() {
		out.TokenNumber = number(s.Token.Number)
	}
	return out
}
