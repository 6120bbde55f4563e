package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"holdfast/driver"
	"holdfast/engine/cluster"
)

// What one look at the service costs at most. Lists come by name; to order them
// otherwise, the first topScan are read, and topKept are kept.
const (
	topScan     = 10_000
	topKept     = 500
	topPageSize = 1000
	topPatience = 4 * time.Second // for one look
)

// topView is what a screen shows.
type topView int

const (
	viewLocks topView = iota
	viewSessions
	viewMembers
	topViews
)

// topSort is the order of a list.
type topSort int

const (
	byName  topSort = iota // of sessions: by ID
	byWaits                // most waiters, or waits, first
	byAge                  // longest held, or oldest, first
	topSorts
)

func (s topSort) String() string { return [...]string{"name", "waiters", "age"}[s] }

// topQuery asks for what one screen shows.
type topQuery struct {
	view   topView
	sort   topSort
	prefix string // of locks, and of what sessions hold and wait for
	page   string // by name: the page to show, "" for the first
	rows   int    // how many it shows
	detail string // the lock whose queue is wanted, "" for none
	places int    // of that queue
}

// sameList reports whether both ask for the same list.
func (q topQuery) sameList(o topQuery) bool {
	return q.view == o.view && q.sort == o.sort && q.prefix == o.prefix && q.page == o.page
}

// topAnswer is what one look at the service brought.
type topAnswer struct {
	query    topQuery
	at       time.Time
	took     time.Duration
	status   *cluster.Status
	cluster  *cluster.ClusterStatus
	locks    []*cluster.Lock
	sessions []*cluster.Session
	next     string        // by name: the next page
	scanned  int           // otherwise: how many were looked at …
	partly   bool          // … and there are more
	detail   *cluster.Lock // nil: it is free, or was not asked for
	stale    bool          // no quorum confirmed it
	age      time.Duration // stale: since the server last heard a leader
	err      error         // nothing else is to be believed
}

// A leaderAsker asks the leader, at its address, about the cluster.
type leaderAsker func(ctx context.Context, address string) (*cluster.ClusterStatus, error)

// members asks for the members: the server that is connected to, and the leader,
// who alone knows how far each has come. A server that does not know the call
// is one member, as far as it says.
func members(ctx context.Context, client *cluster.Client, status *cluster.Status, leaderOf leaderAsker) (*cluster.ClusterStatus, error) {
	seen, err := client.ClusterStatus(ctx, cluster.ClusterStatusOptions{})
	switch {
	case driver.KindOf(err) == driver.Unsupported:
		return &cluster.ClusterStatus{
			Server: status.Server, NodeID: status.NodeID, LeaderID: status.LeaderID, Term: status.Term, Applied: status.AppliedIndex,
			Version: status.Version, Ready: status.Ready, NotReady: status.NotReady,
			Members: []cluster.Member{{ID: status.NodeID, ClientAddr: status.Server}},
		}, nil
	case err != nil:
		return nil, err
	}
	if leader, ok := memberOf(seen, seen.LeaderID); ok && leader.ID != seen.NodeID && leader.ClientAddr != "" {
		if st, err := leaderOf(ctx, leader.ClientAddr); err == nil && st.NodeID == leader.ID {
			return st, nil
		}
	}
	return seen, nil
}

// look asks the service. It takes a bounded time.
func (q topQuery) look(ctx context.Context, client *cluster.Client, leaderOf leaderAsker) topAnswer {
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	began := time.Now()
	a := topAnswer{query: q}
	a.err = a.read(ctx, client, leaderOf)
	a.at = time.Now()
	a.took = a.at.Sub(began)
	return a
}

func (a *topAnswer) read(ctx context.Context, client *cluster.Client, leaderOf leaderAsker) error {
	var err error
	if a.status, err = client.Status(ctx); err != nil {
		return err
	}
	// Who has no leader can still say what it last knew.
	o := cluster.ListOptions{AllowStale: !a.status.Ready}
	switch a.query.view {
	case viewLocks:
		err = a.readLocks(ctx, client, o)
	case viewSessions:
		err = a.readSessions(ctx, client, o)
	case viewMembers:
		a.cluster, err = members(ctx, client, a.status, leaderOf)
	}
	if err != nil || a.query.detail == "" {
		return err
	}
	a.detail, err = client.Get(ctx, a.query.detail, cluster.GetOptions{QueueLimit: uint32(max(1, min(a.query.places, 1000))), AllowStale: o.AllowStale})
	if isNotFound(err) {
		a.detail, err = nil, nil
	}
	return err
}

func (a *topAnswer) readLocks(ctx context.Context, client *cluster.Client, o cluster.ListOptions) (err error) {
	q := a.query
	list := func(page string, o cluster.ListOptions) (cluster.Page[*cluster.Lock], error) {
		return client.LockPage(ctx, q.prefix, page, o)
	}
	if q.sort == byName {
		o.PageSize = uint32(max(1, min(q.rows, topPageSize)))
		p, err := list(q.page, o)
		a.locks, a.next = p.Items, p.Next
		a.fresh(p.Read)
		return err
	}
	key := func(l *cluster.Lock) int64 {
		if q.sort == byWaits {
			return int64(l.Waiters)
		}
		return int64(heldLongest(l))
	}
	a.locks, err = scan(a, o, list, func(*cluster.Lock) bool { return true }, func(x, y *cluster.Lock) int {
		return cmp.Or(cmp.Compare(key(y), key(x)), cmp.Compare(x.Name, y.Name))
	})
	return err
}

// heldLongest is how long the lock's oldest holder has it; -1 if it is free.
func heldLongest(l *cluster.Lock) time.Duration {
	longest := time.Duration(-1)
	for i := range l.Holders {
		longest = max(longest, l.Holders[i].Held)
	}
	return longest
}

func (a *topAnswer) readSessions(ctx context.Context, client *cluster.Client, o cluster.ListOptions) (err error) {
	q := a.query
	list := func(page string, o cluster.ListOptions) (cluster.Page[*cluster.Session], error) {
		return client.SessionPage(ctx, page, o)
	}
	if q.sort == byName && q.prefix == "" {
		o.PageSize = uint32(max(1, min(q.rows, topPageSize)))
		p, err := list(q.page, o)
		a.sessions, a.next = p.Items, p.Next
		a.fresh(p.Read)
		return err
	}
	a.sessions, err = scan(a, o, list, func(s *cluster.Session) bool { return touches(s, q.prefix) }, func(x, y *cluster.Session) int {
		order := 0
		switch q.sort {
		case byWaits:
			order = cmp.Compare(len(y.WaitsFor), len(x.WaitsFor))
		case byAge:
			order = cmp.Compare(y.Age, x.Age)
		}
		return cmp.Or(order, cmp.Compare(x.ID, y.ID))
	})
	return err
}

// scan goes through the pages of a list, to topScan items, and returns the
// first of those that count: topKept, or as many as are shown.
func scan[T any](a *topAnswer, o cluster.ListOptions, list func(string, cluster.ListOptions) (cluster.Page[T], error), counts func(T) bool, order func(x, y T) int) ([]T, error) {
	o.PageSize = topPageSize
	var kept []T
	keep := max(topKept, a.query.rows)
	for page := ""; ; {
		p, err := list(page, o)
		if err != nil {
			return nil, err
		}
		a.fresh(p.Read)
		for _, item := range p.Items {
			if counts(item) {
				kept = append(kept, item)
			}
		}
		slices.SortFunc(kept, order)
		if len(kept) > keep {
			clear(kept[keep:])
			kept = kept[:keep]
		}
		a.scanned += len(p.Items)
		if page = p.Next; page == "" || a.scanned >= topScan {
			a.partly = page != ""
			return kept, nil
		}
	}
}

// fresh notes how fresh an answer is.
func (a *topAnswer) fresh(r cluster.ReadInfo) {
	if r.Stale {
		a.stale, a.age = true, max(a.age, r.Age)
	}
}

// touches reports whether a session holds or waits for a lock with a prefix.
func touches(s *cluster.Session, prefix string) bool {
	if prefix == "" {
		return true
	}
	has := func(lock string) bool { return len(lock) >= len(prefix) && lock[:len(prefix)] == prefix }
	return slices.ContainsFunc(s.Holds, has) || slices.ContainsFunc(s.WaitsFor, has)
}
