package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/fence"
)

// maxElection is the longest name of an election: the service's candidates
// know a second lock by it, with this much added.
const maxElection = fence.MaxLockName - len("/preferred")

// electFlags are the flags of elect as they stand on the command line.
type electFlags struct {
	guardedFlags
	prefer, stopOnSuccess, stopOnFailure bool
	rest                                 time.Duration
	health                               string
	show, follow                         bool
	format                               *string
}

func init() { moreCommands = append(moreCommands, electCmd) }

func electCmd() *cobra.Command {
	f := &electFlags{}
	cmd := &cobra.Command{
		Use:   "elect NAME [flags] -- CMD [ARG…]",
		Short: "Run a command on one of many machines: the primary",
		Long: `Stands in the election NAME, and runs CMD whenever this candidate is in office.
At most one candidate is: the primary. When it loses office, CMD is ended before
the next primary's begins, and the candidate stands again: after an outage, a
revoke, the end of its session, for ever. Each time in office starts CMD anew.

CMD is kept as 'holdfast run' keeps it: in a process group of its own, which
gets SIGTERM when office is lost or handed over, and SIGKILL after --grace or
when the lease ends, whichever is first; SIGTERM is never taken back. If
holdfast elect is killed, the group is killed. CMD gets HOLDFAST_LOCK,
HOLDFAST_TOKEN (the fencing token, for a gate) and HOLDFAST_TOKEN_NUMBER in its
environment; the token is another one each time.

If CMD ends by itself, holdfast elect leaves office, rests (--rest), so that
others have a chance, and stands again; with --stop-on-success or
--stop-on-failure it ends instead.

--value is published while this candidate is in office: the address of the
primary, say. 'holdfast elect NAME --show' prints who is in office and its
value, and needs no command; --follow goes on with each change. What it prints
may be old when it is read.

--prefer makes this the candidate that should be in office. When it has stood in
the queue for 10s, the primary hands over: it ends its CMD, as above. A preferred
candidate that left office because its CMD ended, or that was revoked, stands as
any other from then on, so that office does not go to and fro.

SIGHUP, SIGINT, SIGQUIT and SIGTERM end holdfast elect: the signal is forwarded
to CMD, whose whole group is killed if it has not ended after --grace; then the
next candidate begins. A second SIGINT, SIGQUIT or SIGTERM, half a second later
or more, kills at once. Others (SIGUSR1, SIGUSR2, SIGWINCH) are only forwarded.
On a terminal, Ctrl-C ends both. To make
a primary step down and stand again, revoke its grant:
'holdfast lock revoke NAME --token N'.

Probes: --health-listen HOST:PORT serves over HTTP, for Kubernetes, load
balancers and 'curl -f':
  GET /standing   200 while this candidate is in office or in the queue, or has
                  been out of both for less than twice --ttl; else, and until
                  it first stands, 503
  GET /primary    200 while it is in office; else 503
Both tell, in one JSON object, the state, since when, and why it does not stand.
A process that hangs answers neither, which a file could not show.

What it cannot do: processes that are themselves stopped (SIGSTOP on holdfast
elect and its guardian, a frozen container, a machine that sleeps) end nothing in
time. Where a late write would do harm, give the token to a gate at the resource.

` + electExitTable,
		Example: `  holdfast elect scheduler --value "$(hostname):8080" -- /usr/bin/scheduler
  holdfast elect scheduler --show -o json
  holdfast elect scheduler --prefer --health-listen 127.0.0.1:9000 -- ./scheduler`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.show {
				return f.showPrimary(cmd, args)
			}
			r, err := f.request(cmd, args)
			if err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	f.register(cmd)
	return cmd
}

func (f *electFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.guardedFlags.register(cmd)
	fs.Lookup("value").Usage = "`text` to publish while in office, at most 4096 bytes"
	fs.Lookup("label").Usage = "who stands, for people, at most 256 bytes (default: user and command)"
	boolFlag(fs, &f.prefer, "prefer", "the candidate that should be in office: others hand over to it")
	boolFlag(fs, &f.stopOnSuccess, "stop-on-success", "end when CMD ends by itself with 0")
	boolFlag(fs, &f.stopOnFailure, "stop-on-failure", "end when CMD ends by itself with another code, with that code")
	durationFlag(cmd, &f.rest, "rest", time.Millisecond, 0, "how long not to stand after CMD ended by itself, or a revoke (default 5s)")
	fs.StringVar(&f.health, "health-listen", "", "serve /standing and /primary at this `host:port`")
	boolFlag(fs, &f.show, "show", "print who is in office, instead of standing")
	boolFlag(fs, &f.follow, "follow", "with --show: go on with each change, until interrupted")
	f.format = outputFlag(cmd)
	fs.Lookup("output").Usage = "with --show: what to print"
}

// request checks the whole command line. Nothing is sent before it is right.
func (f *electFlags) request(cmd *cobra.Command, args []string) (*electRequest, error) {
	g, err := f.guardedFlags.request(cmd, args)
	if err != nil {
		return nil, err
	}
	if err := checkElection(g.name); err != nil {
		return nil, err
	}
	for _, name := range []string{"follow", "output"} {
		if cmd.Flags().Changed(name) {
			return nil, usagef("--%s goes with --show, which stands in no election", name)
		}
	}
	if f.health != "" {
		if err := checkAddress(f.health, true); err != nil {
			return nil, usagef("--health-listen: %w", err)
		}
	}
	r := &electRequest{guarded: g, flags: *f}
	if r.path, err = findCommand(g.argv[0], searchPath()); err != nil {
		return nil, err
	}
	return r, nil
}

func checkElection(name string) error {
	if len(name) > maxElection {
		return usagef("the election's name has %d bytes: want at most %d", len(name), maxElection)
	}
	return checkLockName(name)
}

// withShow are the flags that --show goes with.
var withShow = map[string]bool{"show": true, "follow": true, "output": true, "server": true, "cert": true, "key": true, "ca": true}

// checkShow checks the command line of --show.
func checkShow(cmd *cobra.Command, args []string) (name string, err error) {
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if !withShow[fl.Name] && err == nil {
			err = usagef("--show stands in no election, and does not go with --%s", fl.Name)
		}
	})
	switch {
	case err != nil:
		return "", err
	case cmd.ArgsLenAtDash() >= 0 && len(args) > cmd.ArgsLenAtDash():
		return "", usagef("--show runs no command: leave '-- %s' out", printable(strings.Join(args[cmd.ArgsLenAtDash():], " ")))
	case len(args) != 1:
		return "", usagef("%s --show got %d arguments, want exactly: NAME", cmd.CommandPath(), len(args))
	}
	return args[0], checkElection(args[0])
}
