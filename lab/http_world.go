package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// createWorld makes a world and answers with its name and its first event.
func (l *Lab) createWorld(w http.ResponseWriter, r *http.Request) error {
	var body settingsBody
	if err := readJSON(w, r, settingsFields, &body); err != nil {
		return err
	}
	s, err := body.apply(defaultSettings())
	if err != nil {
		return err
	}
	if err := l.worlds.reserve(); err != nil {
		return err
	}
	made, err := l.newWorld(r.Context(), s)
	if e := l.worlds.settle(made); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/lab/v1/worlds/"+made.id)
	first := made.journal.read(0)
	answer(w, r, http.StatusCreated, struct {
		World string          `json:"world"`
		State json.RawMessage `json:"state"`
	}{made.id, first.entries[0]})
	return nil
}

func (l *Lab) deleteWorld(w http.ResponseWriter, r *http.Request) error {
	return l.leave(w, r, "it was deleted")
}

// endWorld is deleteWorld for a page that is being closed: all that a browser
// sends then is a POST, whose body does not matter.
func (l *Lab) endWorld(w http.ResponseWriter, r *http.Request) error {
	return l.leave(w, r, "its page was closed")
}

func (l *Lab) leave(w http.ResponseWriter, r *http.Request, why string) error {
	if _, err := readBody(w, r, maxBody); err != nil {
		return err
	}
	if err := l.worlds.end(r.PathValue("world"), why); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// act does what the visitor asks for, and answers with the number of the last
// event that it caused.
func (l *Lab) act(w http.ResponseWriter, r *http.Request) error {
	var a action
	if err := readJSON(w, r, actionFields, &a); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	world, err := l.worlds.get(r.PathValue("world"))
	if err != nil {
		return err
	}
	l.worlds.acted(world.id)
	seq, err := world.act(a)
	if errors.Is(err, errOver) {
		_, err = l.worlds.get(world.id) // says why
	}
	if err != nil {
		return err
	}
	answer(w, r, http.StatusOK, struct {
		Seq uint64 `json:"seq"`
	}{seq})
	return nil
}

// logFormat names the form of a downloaded log.
const logFormat = "holdfast-lab-log/1"

// serveLog is the round's whole journal as a file.
func (l *Lab) serveLog(w http.ResponseWriter, r *http.Request) error {
	world, err := l.worlds.get(r.PathValue("world"))
	if err != nil {
		return err
	}
	all := world.journal.read(0)
	now := time.Now().UTC()
	head, err := json.Marshal(struct {
		Format   string          `json:"format"`
		Written  string          `json:"written"`
		Version  string          `json:"version"`
		Settings json.RawMessage `json:"settings"`
	}{logFormat, now.Format(time.RFC3339), l.cfg.Version, settingsOf(all.entries[0])})
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="holdfast-lab-%s.json"`, now.Format(time.DateOnly)))
	if r.Method == http.MethodHead {
		return nil
	}
	_, _ = w.Write(head[:len(head)-1])
	writeEntries(w, ",\n\"events\":[\n", all.entries, "\n]}\n")
	return nil
}

// settingsOf takes the settings out of a round's first event.
func settingsOf(round json.RawMessage) json.RawMessage {
	var s struct {
		Round   int               `json:"round"`
		TTLMS   int64             `json:"ttlMs"`
		Compare bool              `json:"compare"`
		Signals bool              `json:"signals"`
		Lock    string            `json:"lock"`
		Values  map[string]string `json:"values"`
	}
	if err := json.Unmarshal(round, &s); err != nil {
		panic(err) // what this package wrote
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return text
}

// writeEntries writes a list of events, one a line.
func writeEntries(w io.Writer, before string, entries []json.RawMessage, after string) {
	_, err := io.WriteString(w, before)
	for i, e := range entries {
		if i > 0 {
			_, err = io.WriteString(w, ",\n")
		}
		if err == nil {
			_, err = w.Write(e)
		}
		if err != nil {
			return // the reader has left
		}
	}
	_, _ = io.WriteString(w, after)
}
