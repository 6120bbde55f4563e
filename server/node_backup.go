package server

import (
	"context"

	"holdfast/server/core"
)

// Image is the whole state at one index. It stays as it is while the node goes
// on, and may be read by any goroutine.
type Image struct {
	State *core.State
	Term  uint64 // raft's, at least that of the state's last entry
	Info  ReadInfo
}

// Image takes an image of the state, on the node's loop, in a time that does
// not depend on its size. Unless stale is set that happens after leadership
// was confirmed by a quorum, so the image has everything that was answered
// before. While an image is kept, what the state changes costs memory twice.
// The errors are those of [Node.View].
func (n *Node) Image(ctx context.Context, stale bool) (Image, error) {
	var i Image
	err := n.View(ctx, stale, func(r Reading) {
		i = Image{State: r.State.Clone(), Term: r.Term, Info: r.Info}
	})
	return i, err
}
