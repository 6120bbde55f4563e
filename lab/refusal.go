package lab

import (
	"errors"
	"fmt"
	"net/http"
)

// A refusal is an answer that says no, and why, and what can be done. Its text
// is for a person.
type refusal struct {
	status int
	text   string
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

func refusef(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// badf refuses what breaks a rule whenever it is sent.
func badf(format string, args ...any) error {
	return refusef(http.StatusBadRequest, format, args...)
}

// notNowf refuses what cannot be done as things stand.
func notNowf(format string, args ...any) error {
	return refusef(http.StatusConflict, format, args...)
}

// statusOf is the status with which an error is answered.
func statusOf(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status
	}
	return http.StatusInternalServerError
}
