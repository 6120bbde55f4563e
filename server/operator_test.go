package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

const (
	annsToken = "3f9c1b7e5a2d4f60"
	bobsToken = "8d2e6a40c7b91f35"
)

func writeTokens(t *testing.T, path, text string) {
	t.Helper()
	tlstest.Replace(t, path, []byte(text))
}

// expels makes an operator's call that changes nothing, and returns the kind of
// its refusal: not-found for whoever may make it.
func expels(t *testing.T, w interface {
	expel(ctx context.Context, header http.Header) error
}, header http.Header) driver.Kind {
	t.Helper()
	return wire.FromError(w.expel(t.Context(), header)).Kind
}

func (w *world) expel(ctx context.Context, header http.Header) error {
	req := connect.NewRequest(&holdfastv1.ExpelSessionRequest{SessionId: 12345, By: "ann"})
	for k, v := range header {
		req.Header()[k] = v
	}
	_, err := w.rpc.ExpelSession(ctx, req)
	return err
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// TestOperatorTokens: once tokens are configured they are needed, from this
// machine too; the file is read again, and whatever is wrong with it opens
// nothing.
func TestOperatorTokens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, "# who may\nann:"+annsToken+"\n\nbob : "+bobsToken+" \n")
	w := start(t, func(c *Config) { c.OperatorTokenFile = path })
	for _, c := range []struct {
		header http.Header
		want   driver.Kind
	}{
		{nil, driver.Denied},
		{bearer(""), driver.Denied},
		{bearer("x" + annsToken), driver.Denied},
		{bearer(annsToken[1:]), driver.Denied},
		{bearer("ann:" + annsToken), driver.Denied},
		{http.Header{"Authorization": {annsToken}}, driver.Denied},
		{http.Header{"Authorization": {"Basic " + annsToken}}, driver.Denied},
		{bearer(annsToken), driver.NotFound},
		{bearer(bobsToken), driver.NotFound},
	} {
		if got := expels(t, w, c.header); got != c.want {
			t.Errorf("%v: %v, want %v", c.header, got, c.want)
		}
	}
	var texts []string
	for _, h := range []http.Header{nil, bearer("wrong"), bearer(annsToken[:15])} {
		texts = append(texts, w.expel(t.Context(), h).Error())
	}
	if texts[0] != texts[1] || texts[1] != texts[2] || strings.Contains(texts[0], "token") {
		t.Errorf("the answer depends on what was offered, or speaks of tokens: %q", texts)
	}
	for _, step := range []struct {
		file       string
		anns, bobs driver.Kind
	}{
		{"ann:" + annsToken, driver.NotFound, driver.Denied},
		{"ann:short", driver.NotFound, driver.Denied},
		{"bob:" + bobsToken, driver.Denied, driver.NotFound},
		{"# nobody\n", driver.Denied, driver.Denied},
		{"ann:" + annsToken, driver.NotFound, driver.Denied},
	} {
		writeTokens(t, path, step.file)
		if anns, bobs := expels(t, w, bearer(annsToken)), expels(t, w, bearer(bobsToken)); anns != step.anns || bobs != step.bobs {
			t.Errorf("with %q: %v and %v, want %v and %v", step.file, anns, bobs, step.anns, step.bobs)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := expels(t, w, bearer(annsToken)); got != driver.NotFound {
		t.Errorf("without the file: %v", got)
	}
	if got := expels(t, w, nil); got != driver.Denied {
		t.Errorf("without the file, and without a token: %v", got)
	}
	if len(w.log.lines(annsToken)) > 0 || len(w.log.lines(bobsToken)) > 0 {
		t.Error("a token is in the log")
	}
	if len(w.log.lines(`"msg":"audit"`, `"credential":"token ann"`, `"call":"expel"`)) == 0 {
		t.Error("no record says by which token the call was made")
	}
}

// TestOperatorCertificates: a name of a verified certificate is a credential;
// that somebody has a certificate of the CA is not.
func TestOperatorCertificates(t *testing.T) {
	t.Parallel()
	s := startSecured(t, true, func(c *Config) { c.OperatorCertNames = []string{"ops", "root.example"} })
	for name, want := range map[string]driver.Kind{"ops": driver.NotFound, "root": driver.NotFound, "ann": driver.Denied} {
		_, err := s.lockService(name).ExpelSession(t.Context(), connect.NewRequest(&holdfastv1.ExpelSessionRequest{SessionId: 7}))
		if got := wire.FromError(err).Kind; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if len(s.log.lines(`"credential":"certificate ops"`)) == 0 || len(s.log.lines(`"credential":"certificate root.example"`)) == 0 {
		t.Errorf("the records do not name the certificates:\n%s", s.log)
	}
	_, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", Dir: t.TempDir(), OperatorCertNames: []string{"ops"}})
	if err == nil || !strings.Contains(err.Error(), "name the CA") {
		t.Errorf("names, and no certificates: %v", err)
	}
}

// A token that crossed a network in the clear is not taken.
func TestOperatorTokenInTheClear(t *testing.T) {
	t.Parallel()
	for peer, clear := range map[string]bool{"127.0.0.1:5": false, "[::1]:5": false, "10.0.0.1:5": true, "nonsense": true} {
		if got := !(shown{authorization: "Bearer x"}).secret(peer); got != clear {
			t.Errorf("%s: in the clear %v", peer, got)
		}
	}
}

func TestTokenFileRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, c := range []struct{ text, says string }{
		{"", "holds none"},
		{"ann " + annsToken, "line 1: want NAME:TOKEN"},
		{"#\n:" + annsToken, "line 2: the name"},
		{"a b:" + annsToken, "line 1: the name"},
		{"ann:" + annsToken[:15], "line 1: the token of ann"},
		{"ann:" + strings.Repeat("x", 513), "line 1: the token of ann"},
		{"ann:" + annsToken + "\nann:" + bobsToken, "was there before"},
		{strings.Repeat("#", maxTokenFileBytes+1), "longer than"},
	} {
		path := filepath.Join(dir, fmt.Sprint(i))
		writeTokens(t, path, c.text)
		_, err := newOperators(Config{OperatorTokenFile: path, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), annsToken[:15]) {
			t.Errorf("%q: %v, want %q", c.text, err, c.says)
		}
	}
	log := &logBuffer{}
	path := filepath.Join(dir, "open")
	writeTokens(t, path, "ann:"+annsToken)
	if err := os.Chmod(path, 0o604); err != nil {
		t.Fatal(err)
	}
	if _, err := newOperators(Config{OperatorTokenFile: path, Logger: slog.New(slog.NewJSONHandler(log, nil))}); err != nil || len(log.lines("chmod 600", "0604")) != 1 {
		t.Errorf("a file that everybody may read: %v, %s", err, log)
	}
	if _, err := newOperators(Config{OperatorCertNames: []string{""}, TLS: tlsfiles.Files{CA: "x"}}); err == nil {
		t.Error("an empty name was taken")
	}
}
