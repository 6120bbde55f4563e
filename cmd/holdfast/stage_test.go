package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHiddenCommands: what the program starts of itself refuses what it would
// not start, and is not shown to people.
func TestHiddenCommands(t *testing.T) {
	t.Parallel()
	mine := filepath.Join(t.TempDir(), "holdfast-mine")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"description":    {workerCommand, "surprise"},
		"name":           {workerCommand, "{}"},
		"exactly: SPEC":  {workerCommand},
		"exactly: DIR":   {sweeperCommand},
		"unknown flag":   {workerCommand, "--surprise"},
		"shorthand flag": {sweeperCommand, "-x"},
	} {
		run(t, exitUsage, nil, args...).says(want)
	}
	for _, dir := range []string{mine, "/", ".", ""} {
		run(t, exitFailure, nil, sweeperCommand, dir).says("will not be removed")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	var out, errs bytes.Buffer
	if code := execute([]string{"--help"}, &out, &errs); code != exitOK {
		t.Errorf("help: exit %d", code)
	}
	if strings.Contains(out.String(), workerCommand) || strings.Contains(out.String(), sweeperCommand) {
		t.Errorf("the help shows what is started by the program alone:\n%s", out.String())
	}
}
