package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"holdfast/fence"
	"holdfast/gate/filegate"
)

const textPlace = "text:"

// TextPlace names, for [OpenLedger], a ledger that is a file of text.
func TextPlace(path string) string { return textPlace + path }

// textBook is a ledger in a file with a JSON object a line. The invoice is what
// the last line says.
type textBook struct {
	path    string
	guarded *filegate.Gate
}

func openText(ctx context.Context, path, lock string) (*textBook, error) {
	g, err := filegate.New(ctx, filegate.Config{Path: path, Lock: lock, Name: GateName, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return &textBook{path, g}, nil
}

func (b *textBook) close() error { return nil }

func (b *textBook) gate() Gate { return b.guarded }

func (b *textBook) lines(context.Context) (all []Line, last Invoice, err error) {
	text, err := os.ReadFile(b.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, last, err
	}
	if all, err = parseLines(bytes.NewReader(text)); err == nil && len(all) > 0 {
		n := all[len(all)-1]
		last = Invoice{n.Worker, n.Value}
	}
	return all, last, err
}

func parseLines(r io.Reader) (all []Line, err error) {
	for lines := json.NewDecoder(r); ; {
		var n Line
		if err := lines.Decode(&n); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
}

func (b *textBook) last(ctx context.Context) (int64, error) {
	all, _, err := b.lines(ctx)
	return int64(len(all)), err
}

func (b *textBook) through(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (int64, error) {
	for {
		err := b.guarded.Do(ctx, t, func(_ context.Context, u *filegate.Update) error {
			var all []Line
			old, err := u.Old()
			if err == nil {
				all, err = parseLines(old)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if inside != nil {
				n.Basis = int64(len(all))
				if err := inside(n.Basis); err != nil {
					return err
				}
			}
			n.Seq = int64(len(all)) + 1
			return writeLines(u, append(all, n))
		})
		if err == nil || inside != nil || !errors.Is(err, filegate.ErrChanged) {
			return n.Seq, err
		}
	}
}

func writeLines(w io.Writer, all []Line) error {
	to := json.NewEncoder(w)
	for _, n := range all {
		if err := to.Encode(n); err != nil {
			return err
		}
	}
	return nil
}

// past replaces the file as a careful program would: a whole new one, renamed.
func (b *textBook) past(ctx context.Context, n Line) (seq int64, err error) {
	all, _, err := b.lines(ctx)
	if err != nil {
		return 0, err
	}
	n.Seq = int64(len(all)) + 1
	var text bytes.Buffer
	if err := writeLines(&text, append(all, n)); err != nil {
		return 0, err
	}
	if err := os.WriteFile(b.path+".new", text.Bytes(), 0o600); err != nil {
		return 0, err
	}
	return n.Seq, os.Rename(b.path+".new", b.path)
}
