package watchdog

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// busyMachine has something in every part of its state.
func busyMachine() *Machine {
	m := New(Settings{TTL: 10 * time.Second}.WithDefaults(), 0)
	m.lanes = []lane{{n: 3}, {n: 2, busy: true, request: request{id: Request{Lane: 1, N: 2}, retryAt: 5}}}
	m.grants = []grant{{}, {known: true, id: "g", contended: 4}}
	m.slots = map[string]int{"g": 1}
	m.calls = map[CallID]call{7: {id: 7, kind: CallRelease, sent: 3, request: Request{1, 1}, grant: "g"}}
	m.told = 4
	m.early = []Revocation{{Grant: "h", Cause: Revoked, By: "x"}}
	return m
}

// TestEncodingHoldsTheWholeState changes each field of the state alone; the
// encoding must show it.
func TestEncodingHoldsTheWholeState(t *testing.T) {
	derived := []string{ // from the rest, or from where it stands
		"set", "freeLanes", "dueRequests", "freeSlots", "dueGrants", "slots", "needing", "out",
		"lanes.request.id.Lane", "lanes.request.id.N", "calls.id",
	}
	m := busyMachine()
	before := m.AppendState(nil)
	if !bytes.Equal(before, m.Clone().AppendState(nil)) {
		t.Fatal("a clone has another encoding")
	}
	changed := 0
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if slices.Contains(derived, path) {
			return
		}
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				if path != "" {
					name = path + "." + name
				}
				f := v.Field(i)
				walk(name, reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem())
			}
			return
		case reflect.Slice:
			walk(path, v.Index(v.Len()-1))
			return
		case reflect.Map: // of calls
			c := m.calls[7]
			inner := reflect.ValueOf(&c).Elem()
			for i := range inner.NumField() {
				f := inner.Field(i)
				keep := c
				at := reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
				bump(at)
				m.calls[7] = c
				if at := path + "." + inner.Type().Field(i).Name; bytes.Equal(before, m.AppendState(nil)) && !slices.Contains(derived, at) {
					t.Errorf("%s is not in the encoding", at)
				}
				c = keep
			}
			m.calls[7] = c
			return
		}
		bump(v)
		changed++
		if bytes.Equal(before, m.AppendState(nil)) {
			t.Errorf("%s is not in the encoding", path)
		}
		v.Set(old)
	}
	walk("", reflect.ValueOf(m).Elem())
	if changed < 40 || !bytes.Equal(before, m.AppendState(nil)) {
		t.Errorf("%d fields were changed and set back: the test tests nothing", changed)
	}
}

// bump changes a value, of a struct the first field.
func bump(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Struct:
		bump(v.Field(0))
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	default:
		v.SetUint(v.Uint() + 1)
	}
}
