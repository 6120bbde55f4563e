package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Limits returns the option that both ends of a connection use: no message
// above [MaxFrame] is read, compressed or not.
func Limits() connect.Option { return connect.WithReadMaxBytes(MaxFrame) }

// Strict returns the handler options that make JSON strict: unknown and
// repeated fields are errors, under both names that JSON has as a content
// type. (Connect's own codec ignores what it does not know, so that a
// misspelt option would be silently dropped.)
func Strict() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(strictJSON{name: "json"}),
		connect.WithCodec(strictJSON{name: "json; charset=utf-8"}),
	)
}

// strictJSON is the JSON codec of the public port.
type strictJSON struct{ name string }

func (c strictJSON) Name() string   { return c.name }
func (c strictJSON) IsBinary() bool { return false }

func (c strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return MarshalJSON(m)
}

func (c strictJSON) MarshalStable(message any) ([]byte, error) { return c.Marshal(message) }

func (c strictJSON) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	return UnmarshalJSON(data, m)
}

// MarshalJSON is m in the standard JSON mapping of protobuf: lowerCamelCase
// names, 64-bit numbers as strings, bytes in base64, on one line.
func MarshalJSON(m proto.Message) ([]byte, error) {
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	// protojson varies its white space on purpose; scripts and tests should
	// not see that.
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// UnmarshalJSON is the inverse of [MarshalJSON]; it also takes the names as
// they stand in the proto file, and refuses any other.
func UnmarshalJSON(data []byte, m proto.Message) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("empty body: want a JSON object, at least {}")
	}
	err := protojson.UnmarshalOptions{DiscardUnknown: false}.Unmarshal(data, m)
	if err == nil {
		return nil
	}
	return errors.New(inWords(err.Error()))
}

// What protojson says, with an ordinary or a no-break space behind "proto:".
var (
	protoPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]+`)
	badValue    = regexp.MustCompile(`^(\(line [\d:]+\): )invalid value for (\w+) field (\w+): ((?s:.*))$`)
	badToken    = regexp.MustCompile(`^syntax error (\(line [\d:]+\): )unexpected token ((?s:.*))$`)
)

// inWords says what is allowed where protojson only says what is not. A text
// that it does not know stays as it is.
func inWords(text string) string {
	text = protoPrefix.ReplaceAllString(text, "")
	if m := badValue.FindStringSubmatch(text); m != nil {
		where, kind, field, value := m[1], m[2], m[3], m[4]
		if field == "secret" {
			return fmt.Sprintf("%sfield secret: want %s", where, allowed(kind, field))
		}
		return fmt.Sprintf("%sfield %s is %s: want %s", where, field, clip(value), allowed(kind, field))
	}
	if m := badToken.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%sunexpected %s: want a JSON object, and in it lists and objects where the API has them", m[1], clip(m[2]))
	}
	if strings.Contains(text, "unexpected EOF") || strings.HasPrefix(text, "syntax error") {
		return "this is no JSON object: " + clip(text)
	}
	return clip(text)
}

// allowed says what a field of a kind of protobuf may be in JSON.
func allowed(kind, field string) string {
	switch {
	case strings.HasSuffix(field, "Ms"):
		return "a whole number of milliseconds, 0 or more"
	case kind == "uint64":
		return fmt.Sprintf("a whole number, 0 … %d", uint64(math.MaxUint64))
	case kind == "uint32":
		return fmt.Sprintf("a whole number, 0 … %d", uint32(math.MaxUint32))
	case kind == "bool":
		return "true or false"
	case kind == "string":
		return "a string of UTF-8"
	case kind == "bytes":
		return "bytes in base64"
	}
	return "a value of type " + kind
}

// clip shortens what somebody sent before it goes into a text.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
