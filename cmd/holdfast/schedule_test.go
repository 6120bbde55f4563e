package main

import (
	"testing"
	"time"
)

func TestScheduleTermIsNeverTakenBack(t *testing.T) {
	t.Parallel()
	var s schedule
	if term, kill, next := s.due(time.Hour); term || kill || next != 0 {
		t.Fatal("an empty schedule is due")
	}
	s.extend(10, 15)
	if term, kill, next := s.due(9); term || kill || next != 10 {
		t.Fatal("due before its time")
	}
	s.extend(20, 25)
	if term, kill, next := s.due(20); !term || kill || next != 25 {
		t.Fatal("SIGTERM is not due at its instant")
	}
	s.extend(100, 105) // a renewal that comes too late
	if term, kill, next := s.due(24); term || kill || next != 25 {
		t.Fatal("a late renewal changed the end")
	}
	if term, kill, next := s.due(25); term || !kill || next != 0 {
		t.Fatal("SIGKILL is not due at the deadline")
	}
	if term, kill, _ := s.due(26); term || kill {
		t.Fatal("a signal is due twice")
	}
}

func TestScheduleEnd(t *testing.T) {
	t.Parallel()
	var s schedule
	s.extend(10, 15)
	s.end(3, 8) // revoked: the grace from now on
	if term, kill, next := s.due(3); !term || kill || next != 8 {
		t.Fatal("SIGTERM is not due at once")
	}
	s.end(4, 20)
	if _, kill, _ := s.due(8); !kill {
		t.Fatal("a second end put SIGKILL off")
	}

	s = schedule{}
	s.extend(10, 15)
	s.end(12, 15)
	if term, kill, _ := s.due(16); !term || !kill {
		t.Fatal("a schedule that was looked at late must send both")
	}

	s = schedule{}
	s.end(5, 5) // lost at the deadline, before anything was known
	if term, kill, _ := s.due(5); !term || !kill {
		t.Fatal("an end at once is not due at once")
	}
}

func TestScheduleNeverMovesBack(t *testing.T) {
	t.Parallel()
	var s schedule
	s.extend(10, 15)
	s.extend(5, 10) // an older answer that was read late
	if term, _, next := s.due(6); term || next != 10 {
		t.Fatal("an older deadline replaced a newer one")
	}
}
