package server

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
)

// What is small on the line and long when it is unpacked is unpacked as far as
// a message may be long, and no further.
func TestABombIsNotUnpackedToItsEnd(t *testing.T) {
	w := start(t)
	const length = 64 << 20
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, length)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	status, body := w.ask(http.MethodPost, "/holdfast.v1.LockService/GetStatus", bomb.String(), func(r *http.Request) {
		r.Header.Set("Content-Encoding", "gzip")
	})
	if status != http.StatusTooManyRequests || !strings.Contains(body, "4194304") || strings.Contains(body, "67108864") {
		t.Errorf("%d %s: want a refusal that names the limit, and not the length, which nobody should have counted", status, body)
	}
}

