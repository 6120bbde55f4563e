package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/server/backup"
)

func recoverCmd() *cobra.Command {
	var b beginning
	var only bool
	cmd := &cobra.Command{
		Use:   "recover OLD --data DIR --i-am-the-only-one (--keep-domain [--above TOKEN] | --new-domain)",
		Short: "Make a new service from the data of the only member that is left",
		Long: `Makes the data directory DIR of a new service from OLD, the data directory of a
member whose cluster can never have a quorum again. OLD is read and stays as it
is; no server may be using it. As long as a majority of the members can come
back, do not use this: start them.

WHAT MAY BE LOST: everything that was acknowledged by the others and had not
reached this disk. Nobody can say how much that is. If there are several
survivors, take the one with the highest last entry, which is printed. Entries
on this disk are all taken, also those that this member did not know to be
committed.

--i-am-the-only-one says that you know this: the others are gone for good, or
stopped and will never be started again on their old data.

` + epochRule + `

` + beginExitTable,
		Args:                  filledArg("OLD"),
		DisableFlagsInUseLine: true,
	}
	b.register(cmd)
	boolFlag(cmd.Flags(), &only, "i-am-the-only-one", "no other member will ever run again on its old data (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := b.options(cmd)
		if err != nil {
			return err
		}
		if !only {
			return usagef("--i-am-the-only-one is missing: it says that no other member will ever run again on its old data; what only they had is lost; see '%s --help'", cmd.CommandPath())
		}
		found, begun, err := backup.Recover(args[0], o)
		if errors.Is(err, backup.ErrNoData) {
			return withCode(exitMissing, err)
		}
		if err != nil {
			return cannotBegin(err)
		}
		s := toSurvivorJSON(found)
		if err := s.print(cmd.OutOrStdout(), *b.format); err != nil {
			return err
		}
		return b.print(cmd.OutOrStdout(), "recovered", begunJSON{From: args[0], Index: found.Last, LastNumber: found.LastNumber, Survivor: s}, begun,
			"holdfast recover "+shellQuote(args[0])+" --i-am-the-only-one")
	}
	return cmd
}

// A survivorJSON is what recover found.
type survivorJSON struct {
	NodeID    string     `json:"node_id"`
	Committed uint64     `json:"committed_index,string"`
	Last      uint64     `json:"last_index,string"`
	Lost      []lostJSON `json:"lost_members"`
}

type lostJSON struct {
	NodeID string `json:"node_id"`
	Name   string `json:"name,omitempty"`
}

func toSurvivorJSON(f backup.Survivor) *survivorJSON {
	s := &survivorJSON{NodeID: fmt.Sprintf("%016x", f.NodeID), Committed: f.Committed, Last: f.Last, Lost: []lostJSON{}}
	for _, m := range f.Others {
		s.Lost = append(s.Lost, lostJSON{fmt.Sprintf("%016x", m.ID), m.Name})
	}
	return s
}

func (s *survivorJSON) print(w io.Writer, format string) error {
	if format == formatJSON {
		return nil
	}
	lost := []string{}
	for _, m := range s.Lost {
		name := m.NodeID
		if m.Name != "" {
			name = quoted(m.Name) + " (" + m.NodeID + ")"
		}
		lost = append(lost, name)
	}
	others := "it was the only member: nothing of its data is missing"
	if len(lost) > 0 {
		others = "lost members " + strings.Join(lost, ", ") + ": what only they had is lost"
	}
	_, err := fmt.Fprintf(w, "member %s has entries up to %d, of which it knew %d to be committed; %s\n", s.NodeID, s.Last, s.Committed, others)
	return err
}
