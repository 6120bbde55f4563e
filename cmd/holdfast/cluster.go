package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"holdfast/driver"
	"holdfast/engine/cluster"
)

func clusterCmd() *cobra.Command {
	cmd := group("cluster", "Look at the members of the cluster, and change them",
		clusterStatusCmd(), clusterAddCmd(), clusterRemoveCmd(), clusterTransferCmd())
	serverFlag(cmd)
	operatorFlag(cmd)
	return cmd
}

func init() { moreCommands = append(moreCommands, clusterCmd) }

// memberID is how a member's ID is written.
var memberID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// parseMember tells whether a word is a member's ID, as 'cluster status' shows
// it, or a name.
func parseMember(word string) (name string, id uint64, err error) {
	if memberID.MatchString(word) {
		id, err = strconv.ParseUint(word, 16, 64)
		if err == nil && id != 0 {
			return "", id, nil
		}
	}
	if word == "" || len(word) > 64 {
		return "", 0, usagef("member %q: want a name or an ID, as 'holdfast cluster status' shows them", word)
	}
	return word, 0, nil
}

// memberName is how people are told of a member.
func memberName(m cluster.Member) string {
	if m.Name == "" {
		return idText(m.ID)
	}
	return printable(m.Name)
}

func idText(id uint64) string { return fmt.Sprintf("%016x", id) }

func clusterAddCmd() *cobra.Command {
	var peer string
	cmd := &cobra.Command{
		Use:   "add NAME --peer HOST:PORT",
		Short: "Let a new node join the cluster",
		Long: `Adds the node that was started with 'holdfast serve --name NAME --join …' and
waits. HOST:PORT is where the members reach its port for nodes; it tells the
rest itself. It is sent the log, and has a vote as soon as it has caught up:
'holdfast cluster status' shows when. One node is added at a time.

` + exitTable,
		Args: exactArgs("NAME"),
	}
	cmd.Flags().StringVar(&peer, "peer", "", "`host:port` of the new node's port for nodes (required)")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the name is empty: want that of the new node, as its --name says")
		}
		if peer == "" {
			return usagef("--peer HOST:PORT is missing: want the address of the new node's port for nodes, as its log shows it")
		}
		return tellOutcome(cmd, *format, func(ctx context.Context, client *cluster.Client) (o outcome, err error) {
			members, err := afterOtherChange(ctx, func() ([]cluster.Member, error) {
				return client.AddMember(ctx, cluster.Member{Name: args[0], PeerAddr: peer}, operatorName())
			})
			o.text = fmt.Sprintf("%s is added, and has a vote as soon as it has caught up; %s now", printable(args[0]), plural(len(members), "member"))
			o.json = struct {
				Added   string       `json:"added"`
				Members []memberJSON `json:"members"`
			}{args[0], toMembersJSON(members)}
			return o, err
		})
	}
	return cmd
}

func clusterRemoveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME|ID",
		Short: "Remove a member for good",
		Long: `Removes a member, which need not run. Its ID never comes back: to let its machine
take part again, give it an empty data directory and add it as a new member. A
removal that would leave too few members in reach is refused. If the member
leads, it hands leadership over first.

` + exitTable,
		Args: exactArgs("NAME|ID"),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, id, err := parseMember(args[0])
		if err != nil {
			return err
		}
		return tellOutcome(cmd, *format, func(ctx context.Context, client *cluster.Client) (o outcome, err error) {
			left, err := afterOtherChange(ctx, func() ([]cluster.Member, error) {
				return client.RemoveMember(ctx, name, id, operatorName())
			})
			o.text = fmt.Sprintf("%s is removed; %s left", printable(args[0]), plural(len(left), "member"))
			o.json = struct {
				Removed string       `json:"removed"`
				Members []memberJSON `json:"members"`
			}{args[0], toMembersJSON(left)}
			return o, missingMember(err)
		})
	}
	return cmd
}

func clusterTransferCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transfer [NAME|ID]",
		Short: "Hand leadership over to another member",
		Long: `Lets another member lead: the one that is named, or the one that has most of the
log. Sessions and locks are kept.

` + exitTable,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactArgs("[NAME|ID]")(cmd, args)
			}
			return nil
		},
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var name string
		var id uint64
		var err error
		if len(args) == 1 {
			if name, id, err = parseMember(args[0]); err != nil {
				return err
			}
		}
		return tellOutcome(cmd, *format, func(ctx context.Context, client *cluster.Client) (o outcome, err error) {
			leader, err := client.TransferLeadership(ctx, name, id, operatorName())
			o.text = memberName(leader) + " leads"
			o.json = struct {
				Leader string `json:"leader"`
				ID     string `json:"id"`
			}{leader.Name, idText(leader.ID)}
			return o, missingMember(err)
		})
	}
	return cmd
}

// An outcome is what a command has to tell, in both forms.
type outcome struct {
	text string
	json any
}

// tellOutcome makes one call of the service, and prints what came of it unless
// it failed.
func tellOutcome(cmd *cobra.Command, format string, call func(context.Context, *cluster.Client) (outcome, error)) error {
	client, err := dial(cmd)
	if err != nil {
		return err
	}
	defer closeClient(client)
	ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
	defer cancel()
	o, err := call(ctx, client)
	switch {
	case err != nil:
		return err
	case format == formatJSON:
		return printJSON(cmd.OutOrStdout(), o.json)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), o.text)
	return err
}

// afterOtherChange repeats a change of members while another one is under way:
// most take a moment, such as that of a leader which tells its own address. One
// that takes longer than ctx is told as it is.
func afterOtherChange(ctx context.Context, change func() ([]cluster.Member, error)) ([]cluster.Member, error) {
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	var busy error
	for {
		members, err := change()
		switch {
		case driver.KindOf(err) == driver.Busy:
			busy = err
		case busy != nil && ctx.Err() != nil:
			return nil, busy
		default:
			return members, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, busy
		}
	}
}

// missingMember gives the error about a member that does not exist its exit
// code.
func missingMember(err error) error {
	if isNotFound(err) {
		return withCode(exitMissing, err)
	}
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
