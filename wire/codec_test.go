package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"holdfast/wire/holdfastv1"
)

// TestBadJSONSaysWhatIsAllowed: a field that cannot be read is named, with what
// it may be, in words that need no knowledge of protobuf.
func TestBadJSONSaysWhatIsAllowed(t *testing.T) {
	for _, c := range []struct {
		into       proto.Message
		json, says string
	}{
		{&holdfastv1.OpenSessionRequest{}, `{"ttlMs":-1}`, `field ttlMs is -1: want a whole number of milliseconds, 0 or more`},
		{&holdfastv1.OpenSessionRequest{}, `{"ttl_ms":"-1"}`, `field ttlMs is "-1": want a whole number`},
		{&holdfastv1.OpenSessionRequest{}, `{"ttlMs":1.5}`, `field ttlMs is 1.5: want a whole number`},
		{&holdfastv1.AcquireRequest{}, `{"request":{"n":18446744073709551616}}`, `18446744073709551615`},
		{&holdfastv1.OpenSessionRequest{}, `{"ttlMs":"15s"}`, `of milliseconds`},
		{&holdfastv1.OpenSessionRequest{}, `{"label":7}`, `field label is 7: want a string`},
		{&holdfastv1.OpenSessionRequest{}, `{"instance":"***"}`, `field instance is "***": want bytes in base64`},
		{&holdfastv1.OpenSessionRequest{}, `{"secret":77777}`, `field secret: want a string`},
		{&holdfastv1.AcquireRequest{}, `{"limit":-4}`, `0 … 4294967295`},
		{&holdfastv1.AcquireRequest{}, `{"request":{"n":-4}}`, `field n is -4: want a whole number, 0 … 18446744073709551615`},
		{&holdfastv1.AcquireRequest{}, `{"shared":"yes"}`, `field shared is "yes": want true or false`},
		{&holdfastv1.AcquireRequest{}, `{"nme":"x"}`, `unknown field "nme"`},
		{&holdfastv1.AcquireRequest{}, `{"session":7}`, `want a JSON object`},
		{&holdfastv1.AcquireRequest{}, `{"lock":"a","lock":"b"}`, `duplicate field "lock"`},
		{&holdfastv1.AcquireRequest{}, `[]`, `want a JSON object`},
		{&holdfastv1.AcquireRequest{}, `{"lock":`, `no JSON`},
		{&holdfastv1.AcquireRequest{}, `{"limit":` + strings.Repeat("9", 5000) + `}`, `want a whole number`},
	} {
		err := UnmarshalJSON([]byte(c.json), c.into)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "proto") || strings.Contains(err.Error(), "77777") || len(err.Error()) > 400 {
			t.Errorf("%.80s: %v, want %q", c.json, err, c.says)
		}
	}
}
