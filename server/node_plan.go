package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/server/peer"
)

// planFile is where a founder keeps what all founders of its cluster wrote, so
// that one of them that died before it had written can still take it from here
// (D7). It is of no other use.
const planFile = "FOUNDERS"

// writePlan writes the plan durably, before anything that follows it.
func writePlan(dir string, p *peer.Plan) error { return writePlanTo(filepath.Join(dir, planFile), p) }

func writePlanTo(path string, p *peer.Plan) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readPlan is the plan in a directory; nil if there is none that can be read.
func readPlan(dir string) *peer.Plan { return readPlanFrom(filepath.Join(dir, planFile)) }

func readPlanFrom(path string) *peer.Plan {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	p := &peer.Plan{}
	if json.Unmarshal(text, p) != nil || p.Incarnation == 0 || len(p.Members) == 0 {
		return nil
	}
	return p
}
