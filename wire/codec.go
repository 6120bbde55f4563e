package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

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
	return protojson.UnmarshalOptions{DiscardUnknown: false}.Unmarshal(data, m)
}
