package command

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"promptfed/federation/configtags"
	"promptfed/tools/promptfed/cli"
)

// removedFlags are flags of earlier releases by command, and what to do instead.
var removedFlags = map[string]map[string]string{
	"bench": {"clients": "use --batch-clients, since --clients is the number of clients of a run",
		"classes": "use --class-lists, since --classes of serve is a file"},
	"bundle":  {"name": "the name of the folder of --out is the bundle's name"},
	"check":   {"size": "open sizes are 2, and those of images a usual size"},
	"convert": {"name": "the name of the folder of --out is the bundle's name"},
	"doctor":  {"cache": "set PROMPTFED_RUNTIME_CACHE"},
	"export":  {"models": "use --set runtime.models=DIR"},
	"join":    {"run": oneRun, "creds": noNATS},
	"launch":  {"log": track},
	"list":    {"models": "set PROMPTFED_RUNTIME_MODELS"},
	"predict": {"models": "use --set runtime.models=DIR"},
	"run":     {"log": track},
	"runs": {"metrics": "use --metric NAME,NAME, since --metrics of serve is an address",
		"state": "use --status, since --state of join is a folder"},
	"sweep": {"log": track},
	"serve": {"run": oneRun, "creds": noNATS,
		"nats": "clients connect to the server's own address, --listen HOST:PORT"},
	"status": {"run": oneRun, "creds": noNATS,
		"once": "the table is printed once where the output is no terminal; add | cat"},
}

const (
	oneRun = "each promptfed serve serves one run, at an address of its own; leave the flag out"
	track  = "use --track, since --log is the format of a log"
	noNATS = "serve, join and status use no NATS any more; use certificates, with --tls DIR (promptfed certs)"
)

// removedCommands refuse the commands of earlier releases.
func removedCommands() []*cobra.Command {
	return []*cobra.Command{{Use: "nats-config", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usagef("nats-config: serve uses no NATS server any more; clients connect to serve --listen " +
				"HOST:PORT, and certificates (promptfed certs) say who they are")
		}}}
}

// flagError marks the error of a flag as wrong usage. For a flag of an earlier release it says what to do instead.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		name := unknown.GetSpecifiedName()
		for at := c; at != nil; at = at.Parent() {
			if instead, ok := removedFlags[at.Name()][name]; ok {
				return cli.Usagef("--%s was removed: %s", name, instead)
			}
		}
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
		return cli.Usagef("%w: %s", err, configtags.Suggest("--"+name, known, c.CommandPath()+" --help lists all"))
	}
	return cli.Usage(err)
}
