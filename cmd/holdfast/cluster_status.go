package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

func clusterStatusCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the members: who leads, who is reached, who is behind",
		Long: `Asks a server for the members, the leader how far each has come, and each member
for itself. --hash also compares the members' states, as of one and the same
entry of the log: they must be equal.

` + exitTable,
		Args: exactArgs(),
	}
	var hash bool
	boolFlag(cmd.Flags(), &hash, "hash", "compare the hashes of the members' states; this takes each of them time")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := surveyCluster(cmd, hash)
		if err != nil {
			return err
		}
		if *format == formatJSON {
			err = printJSON(cmd.OutOrStdout(), s.json())
		} else {
			err = s.print(cmd)
		}
		if err == nil {
			err = s.differ
		}
		return err
	}
	return cmd
}

// A survey is what the members say of themselves and of each other.
type survey struct {
	seen    *cluster.ClusterStatus // by the leader, if it was reached
	members []surveyed
	hashAt  uint64 // the entry whose states were compared; 0: none
	differ  error  // the states are not equal
}

type surveyed struct {
	cluster.Member
	own  *cluster.ClusterStatus // nil if it did not answer
	err  error                  // why it did not
	hash string
}

// surveyCluster asks everybody.
func surveyCluster(cmd *cobra.Command, hash bool) (*survey, error) {
	client, err := dial(cmd)
	if err != nil {
		return nil, err
	}
	defer closeClient(client)
	ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
	defer cancel()
	s := &survey{}
	if s.seen, err = client.ClusterStatus(ctx, cluster.ClusterStatusOptions{}); err != nil {
		return nil, err
	}
	first := s.seen
	if leader, ok := memberOf(first, first.LeaderID); ok && first.LeaderID != first.NodeID {
		if st, err := askMember(cmd, ctx, leader, cluster.ClusterStatusOptions{}); err == nil {
			s.seen = st
		}
	}
	s.members = make([]surveyed, len(s.seen.Members))
	var asked sync.WaitGroup
	for i, m := range s.seen.Members {
		row := &s.members[i]
		row.Member = m
		switch m.ID {
		case s.seen.NodeID:
			row.own = s.seen
		case first.NodeID:
			row.own = first
		default:
			asked.Go(func() { row.own, row.err = askMember(cmd, ctx, m, cluster.ClusterStatusOptions{}) })
		}
	}
	asked.Wait()
	if hash {
		s.compare(cmd)
	}
	return s, nil
}

func memberOf(s *cluster.ClusterStatus, id uint64) (cluster.Member, bool) {
	for _, m := range s.Members {
		if m.ID == id {
			return m, true
		}
	}
	return cluster.Member{}, false
}

// askMember asks one member. A follower sends its clients to the leader, at
// times between their first word and their question: what another node answers
// is no answer, and the member is asked anew.
func askMember(cmd *cobra.Command, ctx context.Context, m cluster.Member, o cluster.ClusterStatusOptions) (*cluster.ClusterStatus, error) {
	var other uint64
	for range 10 {
		st, err := askServer(cmd, ctx, m.ClientAddr, o)
		if err != nil || st.NodeID == m.ID {
			return st, err
		}
		other = st.NodeID
	}
	return nil, fmt.Errorf("node %s answers at its address", idText(other))
}

// askServer asks the server at one address, or whom that names.
func askServer(cmd *cobra.Command, ctx context.Context, address string, o cluster.ClusterStatusOptions) (*cluster.ClusterStatus, error) {
	if address == "" {
		return nil, errors.New("its address for clients is not known")
	}
	secure, err := clientTLS(cmd, saying(cmd))
	if err != nil {
		return nil, err
	}
	c, err := cluster.Dial(ctx, address, &cluster.Options{Label: "holdfast cluster status", Host: hostName(), OpenTimeout: searchTimeout, TLSNow: secure})
	if err != nil {
		return nil, err
	}
	defer closeClient(c)
	return c.ClusterStatus(ctx, o)
}

func (m *surveyed) role(leader uint64) string {
	switch {
	case m.ID == leader:
		return "leader"
	case m.Learner:
		return "learner"
	}
	return "voter"
}

// state says how a member is, for people.
func (m *surveyed) state() string {
	switch {
	case m.own == nil && m.Known && m.Reached:
		return "only members reach it"
	case m.own == nil:
		return "does not answer"
	case m.ReceivesSnapshot:
		return "receives a snapshot"
	case !m.own.Ready:
		return m.own.NotReady
	}
	return "ready"
}

func (s *survey) print(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	leader := "no leader is known"
	if m, ok := memberOf(s.seen, s.seen.LeaderID); ok {
		leader = memberName(m) + " leads in term " + number(s.seen.Term)
	}
	if _, err := fmt.Fprintf(out, "%s; cluster version %d\n", leader, s.seen.ClusterVersion); err != nil {
		return err
	}
	head := []string{"NAME", "ID", "ROLE", "STATE", "LOG", "BEHIND", "RELEASE", "CLIENTS", "PEERS"}
	if s.hashAt != 0 {
		head = append(head, "HASH AT "+number(s.hashAt))
	}
	var rows [][]string
	for i := range s.members {
		m := &s.members[i]
		log, behind, release := "", "", ""
		if m.own != nil {
			log, release = number(m.own.Applied), m.own.Version
		}
		if m.Known {
			behind = number(s.seen.Commit - min(m.Match, s.seen.Commit))
		}
		row := []string{m.Name, idText(m.ID), m.role(s.seen.LeaderID), m.state(), log, behind, release, m.ClientAddr, m.PeerAddr}
		if s.hashAt != 0 {
			row = append(row, m.hash[:min(16, len(m.hash))])
		}
		rows = append(rows, row)
	}
	return table(out, head, rows)
}

// A clusterJSON is what cluster status -o json prints.
type clusterJSON struct {
	LeaderID       string       `json:"leader_id,omitempty"`
	Term           string       `json:"term"`
	CommitIndex    string       `json:"commit_index"`
	ClusterVersion uint32       `json:"cluster_version"`
	Domain         string       `json:"domain"`
	Members        []memberJSON `json:"members"`
	RemovedIDs     []string     `json:"removed_ids"`
	HashIndex      string       `json:"hash_index,omitempty"`
	HashesEqual    *bool        `json:"hashes_equal,omitempty"`
}

type memberJSON struct {
	Name          string `json:"name"`
	ID            string `json:"id"`
	Role          string `json:"role,omitempty"`
	ClientAddress string `json:"client_address"`
	PeerAddress   string `json:"peer_address"`
	Answers       *bool  `json:"answers,omitempty"`
	Ready         *bool  `json:"ready,omitempty"`
	Why           string `json:"why,omitempty"` // it does not answer, or is not ready
	Reached       *bool  `json:"reached_by_leader,omitempty"`
	MatchIndex    string `json:"match_index,omitempty"`
	AppliedIndex  string `json:"applied_index,omitempty"`
	Release       string `json:"release,omitempty"`
	Supports      uint32 `json:"supports_cluster_version,omitempty"`
	StateHash     string `json:"state_hash,omitempty"`
}

func (s *survey) json() clusterJSON {
	out := clusterJSON{
		Term: number(s.seen.Term), CommitIndex: number(s.seen.Commit), ClusterVersion: s.seen.ClusterVersion, Domain: s.seen.Domain,
		Members: []memberJSON{}, RemovedIDs: []string{}, HashIndex: numberIf(s.hashAt),
	}
	if s.seen.LeaderID != 0 {
		out.LeaderID = idText(s.seen.LeaderID)
	}
	for _, id := range s.seen.Removed {
		out.RemovedIDs = append(out.RemovedIDs, idText(id))
	}
	if s.hashAt != 0 {
		out.HashesEqual = new(s.differ == nil)
	}
	for i := range s.members {
		m := &s.members[i]
		j := toMemberJSON(m.Member, s.seen.LeaderID)
		j.Answers, j.StateHash = new(m.own != nil), m.hash
		if m.own != nil {
			j.Ready, j.Why, j.AppliedIndex, j.Release = new(m.own.Ready), m.own.NotReady, number(m.own.Applied), m.own.Version
			j.Supports = m.own.Supports
		} else if m.err != nil {
			j.Why = m.err.Error()
		}
		out.Members = append(out.Members, j)
	}
	return out
}

func toMemberJSON(m cluster.Member, leader uint64) memberJSON {
	row := surveyed{Member: m}
	j := memberJSON{
		Name: m.Name, ID: idText(m.ID), Role: row.role(leader), ClientAddress: m.ClientAddr, PeerAddress: m.PeerAddr, Supports: m.Supports,
	}
	if m.Known {
		j.Reached, j.MatchIndex = new(m.Reached), strconv.FormatUint(m.Match, 10)
	}
	return j
}

func toMembersJSON(list []cluster.Member) []memberJSON {
	out := []memberJSON{}
	for _, m := range list {
		j := toMemberJSON(m, 0)
		if !m.Learner {
			j.Role = "" // it may lead
		}
		out = append(out, j)
	}
	return out
}
