package lab

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed page
var embedded embed.FS

// builtIn is the page as it was when the program was built.
func builtIn() fs.FS {
	page, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // a name of ours
	}
	return page
}

// served are the sorts of files that a page consists of; nothing else is
// served.
var served = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".png":  "image/png",
	".json": "application/json",
}

func (l *Lab) serveIndex(w http.ResponseWriter, r *http.Request) error {
	return l.serve(w, r, "index.html")
}

func (l *Lab) serveFile(w http.ResponseWriter, r *http.Request) error {
	return l.serve(w, r, r.PathValue("file"))
}

// serve serves one file of the page. Browsers ask each time whether it is
// still the same.
func (l *Lab) serve(w http.ResponseWriter, r *http.Request, name string) error {
	kind := served[path.Ext(name)]
	if kind == "" || !fs.ValidPath(name) {
		return notFound(r)
	}
	text, err := fs.ReadFile(l.cfg.Page, name)
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(r)
	}
	if err != nil {
		return refusef(http.StatusNotFound, "%s cannot be read", name)
	}
	sum := sha256.Sum256(text)
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	h.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	return nil
}
