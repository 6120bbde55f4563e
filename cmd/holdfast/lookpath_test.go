package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Without PATH, as under env -i, commands are found where execvp(3) finds
// them; an empty PATH is the working directory.
func TestCommandsAreFoundWithoutAPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/bin/true", filepath.Join(dir, "truth")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("PATH", "")
	find := func(name, want string, code int) {
		t.Helper()
		if path, err := findCommand(name, searchPath()); path != want || exitCode(err) != code {
			t.Errorf("%s: %q, %v; want %q", name, path, err, want)
		}
	}
	find("truth", "./truth", 0)
	find("true", "", exitNotFound)
	os.Unsetenv("PATH")
	find("truth", "", exitNotFound)
	find("true", "/bin/true", 0)
}
