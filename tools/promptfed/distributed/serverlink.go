package distributed

import (
	"errors"

	"github.com/spf13/cobra"

	"promptfed/federation/net/remote"
	"promptfed/tools/promptfed/cli"
)

// oneURL checks that the only argument of a command is the address of a server.
func oneURL(c *cobra.Command, args []string) error {
	err := cli.Exactly(1)(c, args)
	if err == nil {
		if err = remote.CheckURL(args[0]); err != nil {
			err = cli.Usage(err)
		}
	}
	return err
}

// removed is a flag of an earlier release. It is refused in a line that names its successor.
type removed struct{ name, instead string }

func (r removed) String() string   { return "" }
func (r removed) Type() string     { return "string" }
func (r removed) Set(string) error { return r }
func (r removed) Error() string    { return "--" + r.name + ": " + r.instead }

// addRemoved adds flags of earlier releases, which are refused with and without a value.
func addRemoved(c *cobra.Command, flags ...removed) {
	for _, r := range flags {
		f := c.Flags().VarPF(r, r.name, "", "")
		f.NoOptDefVal, f.Hidden = "none", true
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		var r removed
		if errors.As(err, &r) { // without the library's words about an invalid argument
			err = r
		}
		return cli.Usage(err)
	})
}

// Flags of serve, join and status that only the NATS server of earlier releases needed.
var (
	noRun = removed{"run", "each promptfed serve serves one run, at an address of its own; leave the flag out"}

	noCreds = removed{"creds", "serve, join and status use no NATS any more; use certificates, with --tls DIR " +
		"(promptfed certs)"}
	noNATS = removed{"nats", "serve uses no NATS server any more; clients connect to its own address, " +
		"--listen HOST:PORT"}
)
