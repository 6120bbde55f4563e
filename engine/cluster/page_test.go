package cluster

import (
	"fmt"
	"testing"

	"holdfast"
	"holdfast/driver"
)

// Pages follow one another without a gap and without a repetition, also when
// the item between them has gone.
func TestPages(t *testing.T) {
	t.Parallel()
	s := startService(t)
	c := dial(t, s.addr, nil)
	for i := range 5 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("p/%d", i), nil, PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Put(t.Context(), "q", nil, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	first, err := c.LockPage(t.Context(), "p/", "", ListOptions{PageSize: 2})
	if err != nil || len(first.Items) != 2 || first.Items[1].Name != "p/1" || first.Next == "" || first.Read.Revision == 0 {
		t.Fatalf("first page %+v, %v", first, err)
	}
	if _, err := c.Delete(t.Context(), "p/1", DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second, err := c.LockPage(t.Context(), "p/", first.Next, ListOptions{PageSize: 100})
	if err != nil || len(second.Items) != 3 || second.Items[0].Name != "p/2" || second.Next != "" {
		t.Fatalf("second page %+v, %v", second, err)
	}
	if _, err := c.LockPage(t.Context(), "", "*", ListOptions{}); driver.KindOf(err) != driver.Invalid {
		t.Errorf("a page that is none: %v", err)
	}
}

func TestSessionPages(t *testing.T) {
	t.Parallel()
	s := startService(t)
	c := dial(t, s.addr, nil)
	for range 3 {
		own := dial(t, s.addr, nil)
		if _, err := own.Locker().Acquire(t.Context(), "shared", holdfast.WithExtension(&extension{AcquireOptions{Shared: true}})); err != nil {
			t.Fatal(err)
		}
	}
	first, err := c.SessionPage(t.Context(), "", ListOptions{PageSize: 2})
	if err != nil || len(first.Items) != 2 || first.Next == "" {
		t.Fatalf("first page %+v, %v", first, err)
	}
	second, err := c.SessionPage(t.Context(), first.Next, ListOptions{PageSize: 2})
	if err != nil || len(second.Items) != 1 || second.Next != "" || second.Items[0].ID <= first.Items[1].ID {
		t.Fatalf("second page %+v, %v", second, err)
	}
}
