package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
)

// A fileView is all that the file of a lock has ever been seen to hold.
type fileView struct {
	dir   string
	seen  map[string]map[int64]entry // lock, version
	wrong []string
}

// look reads the files of the locks. Two writes of one version are a lost
// update: somebody wrote over what he had not read.
func (v *fileView) look(locks []string) error {
	for _, lock := range locks {
		if !isFile(lock) {
			continue
		}
		l := &fileLedger{path: ledgerFile(v.dir, lock)}
		all, err := l.entries()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		v.add(lock, all)
	}
	return nil
}

func (v *fileView) add(lock string, all []entry) {
	if v.seen[lock] == nil {
		v.seen[lock] = map[int64]entry{}
	}
	for _, e := range all {
		was, known := v.seen[lock][e.version]
		if known && was != e {
			v.wrong = append(v.wrong, fmt.Sprintf("lost update: %s: version %d was %s's, and is %s's", lock, e.version, was.name, e.name))
		}
		v.seen[lock][e.version] = e
	}
}

// ledgers adds what was seen, in the order of the versions.
func (v *fileView) ledgers(into map[string][]entry) {
	for lock, seen := range v.seen {
		for _, version := range slices.Sorted(maps.Keys(seen)) {
			into[lock] = append(into[lock], seen[version])
		}
	}
}
