package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A procEntry is one line of the process table.
type procEntry struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	ppid    int
	pgrp    int
	state   byte // 'Z' and 'X' are dead
}

func (p procEntry) dead() bool { return p.state == 'Z' || p.state == 'X' || p.state == 'x' }

// standsStopped reports whether a process is stopped by a signal.
func standsStopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	p, ok := parseStat(pid, stat)
	return ok && p.state == 'T'
}

// processes reads the process table. A process that ends meanwhile is left
// out; one that starts meanwhile may be.
func processes() ([]procEntry, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []procEntry
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, stat); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// parseStat reads what is needed of /proc/PID/stat. The command's name stands
// in parentheses and may itself hold any byte, so the last one counts.
func parseStat(pid int, stat []byte) (procEntry, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return procEntry{}, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 3 {
		return procEntry{}, false
	}
	ppid, err1 := strconv.Atoi(fields[1])
	pgrp, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil || len(fields[0]) != 1 {
		return procEntry{}, false
	}
	return procEntry{PID: pid, Command: string(stat[open+1 : end]), ppid: ppid, pgrp: pgrp, state: fields[0][0]}, true
}

// groupMembers are the living processes of a process group.
func groupMembers(all []procEntry, pgid int) []procEntry {
	var in []procEntry
	for _, p := range all {
		if p.pgrp == pgid && !p.dead() {
			in = append(in, p)
		}
	}
	return in
}

// descendants are the living processes below pid, dead ones in between
// included in the search.
func descendants(all []procEntry, pid int) []procEntry {
	children := map[int][]procEntry{}
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var found []procEntry
	todo := []int{pid}
	seen := map[int]bool{pid: true}
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		for _, p := range children[next] {
			if seen[p.PID] {
				continue // the table changed while it was read
			}
			seen[p.PID] = true
			todo = append(todo, p.PID)
			if !p.dead() {
				found = append(found, p)
			}
		}
	}
	return found
}

// most processes that a report names.
const maxReported = 20

// named fills in the full command lines, of at most maxReported processes.
func named(ps []procEntry) []procEntry {
	if len(ps) > maxReported {
		ps = ps[:maxReported]
	}
	for i := range ps {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(ps[i].PID) + "/cmdline")
		if err == nil && len(line) > 0 {
			ps[i].Command = string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
		}
		if len(ps[i].Command) > 200 {
			ps[i].Command = strings.ToValidUTF8(ps[i].Command[:200], "") + "…"
		}
	}
	return ps
}

// listed says in one line which processes they are.
func listed(ps []procEntry) string {
	var parts []string
	for _, p := range ps {
		parts = append(parts, fmt.Sprintf("%d (%s)", p.PID, printable(p.Command)))
	}
	return strings.Join(parts, ", ")
}
