package peer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// notes keeps what is logged again and again from filling the log: each kind
// of thing is told when it changes, and every half minute.
type notes struct {
	mu   sync.Mutex
	last map[string]note
}

type note struct {
	text  string
	at    time.Time
	times int // since it was told
}

func (n *notes) warn(log *slog.Logger, key, text string, args ...any) {
	n.say(log, slog.LevelWarn, key, text, args...)
}

func (n *notes) say(log *slog.Logger, level slog.Level, key, text string, args ...any) {
	said := text + fmt.Sprint(args...)
	n.mu.Lock()
	old, ok := n.last[key]
	again := !ok || old.text != said || time.Since(old.at) > 30*time.Second
	if again {
		if n.last == nil || len(n.last) > 1000 {
			n.last = map[string]note{}
		}
		n.last[key] = note{text: said, at: time.Now()}
	}
	n.mu.Unlock()
	if again {
		log.Log(context.Background(), level, text, args...)
	}
}

// rareEvery is how often the same thing is told by seldom.
const rareEvery = time.Minute

// seldom tells what has one key at once, and then every minute at most, with
// how often it happened since.
func (n *notes) seldom(log *slog.Logger, level slog.Level, key, text string, args ...any) {
	n.mu.Lock()
	old, ok := n.last[key]
	old.times++
	times, now := old.times, !ok || time.Since(old.at) >= rareEvery
	if now {
		old.at, old.times = time.Now(), 0
	}
	if n.last == nil || len(n.last) > 1000 {
		n.last = map[string]note{}
	}
	n.last[key] = old
	n.mu.Unlock()
	if now {
		log.Log(context.Background(), level, text, append(args, "times", times)...)
	}
}

func (n *notes) forget(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.last, key)
}
