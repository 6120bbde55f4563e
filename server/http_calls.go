package server

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// onlyCalls passes on what the RPC handler can answer, and tells everybody else
// what to send: that layer answers an unknown method with a page, and a GET or
// a wrong content type with nothing.
func onlyCalls(prefix string, next http.Handler) http.Handler {
	takes := map[string][]string{} // by method: the content types
	all := holdfastv1.File_holdfast_v1_holdfast_proto.Services().ByName("LockService").Methods()
	var names []string
	for i := range all.Len() {
		name := string(all.Get(i).Name())
		names = append(names, name)
		takes[name] = contentTypes(prefix+name, next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, prefix)
		types, known := takes[name]
		switch {
		case !known:
			_ = connect.NewErrorWriter().Write(w, r, wire.Error(&driver.Error{
				Kind: driver.Unsupported, Outcome: driver.No,
				Msg: fmt.Sprintf("no method %q: want POST %s and one of %s", clip(name), prefix, strings.Join(names, ", ")),
			}))
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			misused(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s of a method: want POST %s with Content-Type: %s and a body, at least {}", r.Method, r.URL.Path, types[0]))
		case all.ByName(protoreflect.Name(name)).IsStreamingClient() && r.ProtoMajor < 2:
			w.Header().Set("Connection", "close")
			misused(w, http.StatusHTTPVersionNotSupported, fmt.Sprintf("%s is a stream in both directions: want HTTP/2; over HTTP/1.1 each of its frames is a method of its own", name))
		case !slices.Contains(types, contentType(r)):
			w.Header().Set("Accept-Post", strings.Join(types, ", "))
			misused(w, http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type is %q: want %s", clip(r.Header.Get("Content-Type")), wanted(name, types)))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// contentTypes asks the RPC handler what it takes for a method; the first is
// the one for people.
func contentTypes(path string, h http.Handler) []string {
	var probe silentWriter
	r, err := http.NewRequest(http.MethodPost, path, http.NoBody)
	if err != nil {
		panic(err) // a path of ours
	}
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0 // a stream of both directions takes nothing over less
	r.Header.Set("Content-Type", "?")
	h.ServeHTTP(&probe, r)
	var types []string
	for t := range strings.SplitSeq(probe.Header().Get("Accept-Post"), ", ") {
		types = append(types, t)
	}
	for i, t := range types {
		if t == "application/json" || t == "application/connect+json" {
			types[0], types[i] = types[i], types[0]
		}
	}
	return types
}

// silentWriter keeps the header of an answer only.
type silentWriter struct{ header http.Header }

// Header implements http.ResponseWriter.
func (s *silentWriter) Header() http.Header {
	if s.header == nil {
		s.header = http.Header{}
	}
	return s.header
}

// Write implements http.ResponseWriter.
func (s *silentWriter) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (s *silentWriter) WriteHeader(int) {}

// contentType is a request's content type in the form that the RPC layer
// compares: lower case, and so the value of its charset.
func contentType(r *http.Request) string {
	given := r.Header.Get("Content-Type")
	base, params, err := mime.ParseMediaType(given)
	if err != nil {
		return given
	}
	if charset, ok := params["charset"]; ok {
		params["charset"] = strings.ToLower(charset)
	}
	return mime.FormatMediaType(base, params)
}

// wanted says what to send instead.
func wanted(method string, types []string) string {
	switch method {
	case "Watch":
		return types[0] + " or gRPC: it is a stream; in plain JSON there are Poll, and GET /v1/watch"
	case "Session":
		return types[0] + " or gRPC: it is a stream; in plain JSON each of its frames is a method of its own"
	}
	return types[0] + " (for example: curl -H 'Content-Type: application/json' -d '{…}'), application/proto, or gRPC"
}

// misused answers a request that is no call, in the form of an error of one.
func misused(w http.ResponseWriter, status int, text string) {
	body, err := json.Marshal(map[string]string{"code": connect.CodeInvalidArgument.String(), "message": text})
	if err != nil {
		body = []byte("{}") // cannot happen: two strings
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// clip shortens what somebody sent before it goes into a text.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
