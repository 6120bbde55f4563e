package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

func init() { moreCommands = append(moreCommands, newTopCommand) }

// topFlags are the settings of top.
type topFlags struct {
	prefix   string
	sort     string
	interval time.Duration
	limit    int
	format   string // "" if it was not asked for
}

const topHelp = `Shows locks with their holders and queues, sessions, and members of the service,
and keeps the picture up to date until q is pressed. What it shows changes with
the service's events, at most twice a second, and else every --interval.

  1 2 3, tab    locks, sessions, members
  up, down, page up, page down, home, end
  enter         all of the chosen lock or session: its holders and its queue
  s             order by name, by waiters, by age
  /             only locks that begin with a prefix, and who holds or awaits them
  q             quit

By name, only what is on the screen is asked for. Any other order looks at the
first 10,000 locks (or sessions), and says so if there are more: narrow it with
a prefix. Rates are over the last ten seconds. NO_COLOR is respected.

Where standard output is no terminal, or a dumb one, it prints everything once,
as text; -o json prints one object.`

func newTopCommand() *cobra.Command {
	f := topFlags{sort: byName.String(), interval: 2 * time.Second, limit: 1000}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch locks, waits, sessions and members on the terminal",
		Long:  topHelp + "\n\n" + exitTable + "\n  128+1    the terminal has gone",
		Args:  exactArgs(),
	}
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only locks that begin with `PREFIX`")
	cmd.Flags().Var(&choiceValue{&f.sort, []string{byName.String(), byWaits.String(), byAge.String()}}, "sort", "the order of locks to begin with")
	cmd.Flags().Var(&durationValue{d: &f.interval, min: 500 * time.Millisecond, max: time.Hour}, "interval", "how often to look when nothing happens")
	cmd.Flags().Var(&intValue{&f.limit, 1, 100_000}, "limit", "printed once: at most so many locks, and so many sessions")
	cmd.Flags().VarP(&choiceValue{&f.format, []string{formatText, formatJSON}}, "output", "o", "print once, in this format")
	serverFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.prefix != "" {
			if err := checkLockName(f.prefix); err != nil {
				return err
			}
		}
		if f.format == "" {
			if t := liveTerminal(cmd.OutOrStdout()); t != nil {
				defer t.close()
				return topLive(cmd, &f, t)
			}
		}
		client, err := dial(cmd)
		if err != nil {
			return err
		}
		defer closeClient(client)
		return topOnce(cmd, client, &f)
	}
	return cmd
}

// A topPicture is what top prints once. Each list is as of its own moment.
type topPicture struct {
	Time              string        `json:"time"`
	Server            topServer     `json:"server"`
	Members           []memberJSON  `json:"members"`
	Locks             []lockJSON    `json:"locks"`
	LocksTruncated    bool          `json:"locks_truncated"` // there are more than --limit
	Sessions          []sessionJSON `json:"sessions"`
	SessionsTruncated bool          `json:"sessions_truncated"`
}

// topServer is what the server says of itself.
type topServer struct {
	Address      string `json:"address"`
	Version      string `json:"version"`
	Domain       string `json:"domain"`
	Incarnation  string `json:"incarnation"`
	NodeID       string `json:"node_id"`
	Role         string `json:"role"`
	LeaderID     string `json:"leader_id"` // "" if not known
	Term         string `json:"term"`
	AppliedIndex string `json:"applied_index"`
	Revision     string `json:"revision"`
	Epoch        uint32 `json:"epoch"`
	LastNumber   string `json:"last_number"`
	ClockMS      int64  `json:"clock_ms"` // of the log
	Ready        bool   `json:"ready"`
	NotReady     string `json:"not_ready,omitempty"`
	Sessions     uint64 `json:"sessions"`
	Locks        uint64 `json:"locks"`
}

func toTopServer(s *cluster.Status) topServer {
	out := topServer{
		Address: s.Server, Version: s.Version, Domain: s.Domain.String(), Incarnation: s.Incarnation,
		NodeID: idText(s.NodeID), Role: s.Role, Term: number(s.Term),
		AppliedIndex: number(s.AppliedIndex), Revision: number(s.Revision), Epoch: s.Epoch,
		LastNumber: number(s.LastNumber), ClockMS: millis(s.Clock), Ready: s.Ready, NotReady: s.NotReady,
		Sessions: s.Sessions, Locks: s.Locks,
	}
	if s.LeaderID != 0 {
		out.LeaderID = idText(s.LeaderID)
	}
	return out
}

// topMembers is what the server that was asked says of the members.
func topMembers(seen *cluster.ClusterStatus) []memberJSON {
	out := []memberJSON{}
	for _, m := range seen.Members {
		j := toMemberJSON(m, seen.LeaderID)
		if m.ID == seen.NodeID {
			j.Ready, j.Why, j.AppliedIndex, j.Release = new(seen.Ready), seen.NotReady, number(seen.Applied), seen.Version
		}
		out = append(out, j)
	}
	return out
}

// memberRow is one member: name, role, state, how far its log is, how many
// entries that is behind, and its addresses.
func memberRow(seen *cluster.ClusterStatus, m *cluster.Member) []string {
	state, log, behind := "", "", ""
	switch {
	case m.ID == seen.NodeID && !seen.Ready:
		state = "not ready: " + seen.NotReady
	case m.ID == seen.NodeID:
		state = "ready"
	case m.Known && m.ReceivesSnapshot:
		state = "receives a snapshot"
	case m.Known && !m.Reached:
		state = "NOT REACHED by the leader"
	case m.Known:
		state = "reached"
	}
	switch {
	case m.ID == seen.NodeID:
		log, behind = number(seen.Applied), number(seen.Commit-min(seen.Applied, seen.Commit))
	case m.Known:
		log, behind = number(m.Match), number(seen.Commit-min(m.Match, seen.Commit))
	}
	row := surveyed{Member: *m}
	return []string{memberName(*m), row.role(seen.LeaderID), state, log, behind, m.ClientAddr, m.PeerAddr}
}

// topOnce prints the picture of now.
func topOnce(cmd *cobra.Command, client *cluster.Client, f *topFlags) error {
	servers, err := serverList(cmd)
	if err != nil {
		return err
	}
	status, err := client.Status(cmd.Context())
	if err != nil {
		return err
	}
	o := cluster.ListOptions{PageSize: topPageSize, AllowStale: !status.Ready}
	seen, err := members(cmd.Context(), client, status, func(ctx context.Context, address string) (*cluster.ClusterStatus, error) {
		return askServer(cmd, ctx, address, cluster.ClusterStatusOptions{})
	})
	if err != nil {
		return err
	}
	locks, moreLocks, err := firstLocks(cmd.Context(), client, f, o)
	if err != nil {
		return err
	}
	sessions, moreSessions, err := firstSessions(cmd.Context(), client, f, o)
	if err != nil {
		return err
	}
	if f.format != formatJSON {
		return printTop(cmd.OutOrStdout(), status, seen, locks, sessions, moreLocks, moreSessions)
	}
	p := topPicture{
		Time: time.Now().Format(time.RFC3339Nano), Server: toTopServer(status), Members: topMembers(seen),
		Locks: []lockJSON{}, LocksTruncated: moreLocks, Sessions: []sessionJSON{}, SessionsTruncated: moreSessions,
	}
	for _, l := range locks {
		p.Locks = append(p.Locks, toLockJSON(l, servers))
	}
	for _, s := range sessions {
		p.Sessions = append(p.Sessions, toSessionJSON(s))
	}
	return printJSON(cmd.OutOrStdout(), p)
}

// firstLocks reads the first locks in the wanted order, with their queues, and
// reports whether there are more.
func firstLocks(ctx context.Context, client *cluster.Client, f *topFlags, o cluster.ListOptions) (locks []*cluster.Lock, more bool, err error) {
	if f.sort == byName.String() {
		for l, err := range client.List(ctx, f.prefix, o) {
			if err != nil {
				return nil, false, err
			}
			if len(locks) == f.limit {
				more = true
				break
			}
			locks = append(locks, l)
		}
	} else {
		a := topAnswer{query: topQuery{sort: sortNamed(f.sort), prefix: f.prefix, rows: f.limit}}
		if err := a.readLocks(ctx, client, o); err != nil {
			return nil, false, err
		}
		locks = a.locks[:min(len(a.locks), f.limit)]
		more = a.partly || len(locks) < a.scanned
	}
	return locks, more, addQueues(ctx, client, locks, o.AllowStale)
}

// queueReaders is how many queues are asked for at a time.
const queueReaders = 8

// addQueues asks for the queues of those locks for which somebody waits. One
// that has become free in the meantime stays as it was.
func addQueues(ctx context.Context, client *cluster.Client, locks []*cluster.Lock, stale bool) error {
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, queueReaders)
	for i, l := range locks {
		if l.Waiters == 0 {
			continue
		}
		turns <- struct{}{}
		readers.Go(func() {
			defer func() { <-turns }()
			got, err := client.Get(ctx, l.Name, cluster.GetOptions{QueueLimit: topPageSize, AllowStale: stale})
			switch {
			case err == nil:
				locks[i] = got
			case !isNotFound(err):
				cancel(err)
			}
		})
	}
	readers.Wait()
	return context.Cause(ctx)
}

func sortNamed(name string) topSort {
	for s := range topSorts {
		if s.String() == name {
			return s
		}
	}
	return byName
}

func firstSessions(ctx context.Context, client *cluster.Client, f *topFlags, o cluster.ListOptions) (sessions []*cluster.Session, more bool, err error) {
	for s, err := range client.Sessions(ctx, o) {
		if err != nil {
			return nil, false, err
		}
		if !touches(s, f.prefix) {
			continue
		}
		if len(sessions) == f.limit {
			return sessions, true, nil
		}
		sessions = append(sessions, s)
	}
	return sessions, false, nil
}

// printTop is the picture as text.
func printTop(w io.Writer, s *cluster.Status, seen *cluster.ClusterStatus, locks []*cluster.Lock, sessions []*cluster.Session, moreLocks, moreSessions bool) error {
	state := "ready"
	if !s.Ready {
		state = "not ready: " + printable(s.NotReady)
	}
	if _, err := fmt.Fprintf(w, "server %s, %s, %s, term %d, applied %d, revision %d, %d sessions, %d locks\n\n",
		s.Server, printable(s.Role), state, s.Term, s.AppliedIndex, s.Revision, s.Sessions, s.Locks); err != nil {
		return err
	}
	var rows [][]string
	for _, l := range locks {
		rows = append(rows, append(lockRow(l), waitersText(l)))
	}
	if err := table(w, []string{"LOCK", "STATE", "GRANT", "HOLDER", "HELD", "RENEWED", "WAITERS", "FIRST OF THEM"}, rows); err != nil {
		return err
	}
	if err := moreText(w, moreLocks, "locks"); err != nil {
		return err
	}
	rows = nil
	for _, s := range sessions {
		rows = append(rows, []string{number(s.ID), holderText(s.Label, s.Host, ""), sessionState(s), brief(s.TTLLeft), agoText(s.LastHeard), brief(s.Age), names(s.Holds), names(s.WaitsFor)})
	}
	fmt.Fprintln(w)
	if err := table(w, []string{"SESSION", "OF", "STATE", "TTL LEFT", "RENEWED", "AGE", "HOLDS", "WAITS FOR"}, rows); err != nil {
		return err
	}
	if err := moreText(w, moreSessions, "sessions"); err != nil {
		return err
	}
	rows = nil
	for i := range seen.Members {
		rows = append(rows, memberRow(seen, &seen.Members[i]))
	}
	fmt.Fprintln(w)
	return table(w, []string{"MEMBER", "ROLE", "STATE", "LOG", "BEHIND", "CLIENTS", "PEERS"}, rows)
}

func moreText(w io.Writer, more bool, what string) error {
	if !more {
		return nil
	}
	_, err := fmt.Fprintf(w, "… and more %s: raise --limit, or narrow it with --prefix\n", what)
	return err
}

// waitersText names the head of a queue.
func waitersText(l *cluster.Lock) string {
	if len(l.Queue) == 0 {
		return ""
	}
	q := l.Queue[0]
	return holderName(q.Label, q.Host, q.SessionID) + " for " + brief(q.Waited)
}

func sessionState(s *cluster.Session) string {
	state := "detached"
	if s.Attached {
		state = "attached"
	}
	if s.Suspected {
		state += ", silent"
	}
	return state
}

// liveTerminal is the terminal on which a live picture can be shown: standard
// output, if it is one that can do more than print lines.
func liveTerminal(w io.Writer) *topTerminal {
	out, ok := w.(*os.File)
	if kind := os.Getenv("TERM"); !ok || !isTerminal(int(out.Fd())) || kind == "" || kind == "dumb" {
		return nil
	}
	return openTopTerminal(out)
}
