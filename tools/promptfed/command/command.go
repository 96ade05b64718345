package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"promptfed/federation/configtags"
	"promptfed/runtime/oneline"
	"promptfed/runtime/version"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/distributed"
	"promptfed/tools/promptfed/inspect"
	"promptfed/tools/promptfed/report"
	"promptfed/tools/promptfed/run"
	"promptfed/tools/promptfed/runfolder"
	"promptfed/tools/promptfed/signals"
)

// Main runs promptfed with the arguments of the process, and exits.
func Main() {
	ctx, stop := signals.Context(context.Background())
	ctx = runfolder.WithCommandLine(ctx, os.Args)
	code := Execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// Execute runs promptfed with arguments and returns its exit code: 0 for success, else cli.ExitCode. It prints the
// error of the command as one line.
func Execute(ctx context.Context, args []string) int {
	root := Root()
	checkTopics(root)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}

	if errors.Is(err, context.Canceled) && ctx.Err() != nil { // by signals.Context
		err = errors.New("stopped by a signal before it was done; start it again")
	}

	fmt.Fprintln(os.Stderr, "promptfed: "+oneline.Text(err.Error()))
	return cli.ExitCode(err)
}

// Root returns the program with all its commands.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use: "promptfed", Short: "Federated prompt learning over frozen vision-language models",
		SilenceErrors: true, SilenceUsage: true,
	}

	root.Version = version.String()
	root.SetVersionTemplate("promptfed {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	outputs := report.Outputs()
	root.AddCommand(slices.Concat(run.Commands(outputs), distributed.Commands(outputs), inspect.Commands(),
		report.Commands())...)
	complete(root)
	describe(root)
	return cli.Chooses(root)
}

// flagError marks the error of a flag as wrong usage.
func flagError(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return cli.Usage(err)
	}

	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return cli.Usagef("%w: %s", err, configtags.Suggest("--"+unknown.GetSpecifiedName(), known,
		c.CommandPath()+" --help lists all"))
}
