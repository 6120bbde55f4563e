package wire

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"holdfast/wire/holdfastv1"
)

// TestCasebookC37_NoMessageCarriesATimeOfDay: nobody can compare its clock with
// another machine's, because no message has room for one. Times travel as
// durations. The fields named below show the log's own clock, which is a
// duration that only the log moves, to people and to those who watch.
func TestCasebookC37_NoMessageCarriesATimeOfDay(t *testing.T) {
	logClock := []protoreflect.FullName{
		"holdfast.v1.AuditRecord.clock_ms", "holdfast.v1.Event.clock_ms", "holdfast.v1.Event.opens_at_ms", "holdfast.v1.GetStatusResponse.clock_ms",
	}
	var found []protoreflect.FullName
	words := []string{"at", "time", "timestamp", "unix", "date", "utc", "wall", "clock", "until", "deadline", "expires", "now"}
	fields := 0
	var walk func(protoreflect.MessageDescriptors)
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			m := messages.Get(i)
			walk(m.Messages())
			for j := range m.Fields().Len() {
				f := m.Fields().Get(j)
				fields++
				if x := f.Message(); x != nil && x.ParentFile() != m.ParentFile() && !x.IsMapEntry() {
					t.Errorf("%s is a %s of another file: only durations in milliseconds tell times here", f.FullName(), x.FullName())
				}
				if slices.Contains(logClock, f.FullName()) {
					found = append(found, f.FullName())
					continue
				}
				for word := range strings.SplitSeq(string(f.Name()), "_") {
					if slices.Contains(words, word) && f.Kind() != protoreflect.BoolKind {
						t.Errorf("%s is named like an instant: send a duration", f.FullName())
					}
				}
			}
		}
	}
	walk(holdfastv1.File_holdfast_v1_holdfast_proto.Messages())
	slices.Sort(found)
	if !slices.Equal(found, logClock) || fields < 100 {
		t.Errorf("of %d fields %q show the log's clock: want %q", fields, found, logClock)
	}
}
