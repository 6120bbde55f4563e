package wire

import (
	"compress/gzip"
	"fmt"
	"io"

	"connectrpc.com/connect"
)

// BoundedGzip returns the handler option that unpacks messages no further than
// [MaxFrame]. (Connect's own reader refuses a longer one too, but unpacks all
// of it first, to tell its length: 4 MiB on the line would be 4 GiB of work.)
func BoundedGzip() connect.HandlerOption {
	return connect.WithCompression("gzip",
		func() connect.Decompressor { return &boundedGzip{} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
}

// boundedGzip unpacks one byte more than a message may have, by which connect
// sees that it is too long, and then fails.
type boundedGzip struct {
	gzip.Reader
	left int
}

// Reset implements [connect.Decompressor].
func (b *boundedGzip) Reset(r io.Reader) error {
	b.left = MaxFrame + 1
	return b.Reader.Reset(r)
}

// Read implements [connect.Decompressor].
func (b *boundedGzip) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("it was unpacked up to %d bytes only", MaxFrame)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
