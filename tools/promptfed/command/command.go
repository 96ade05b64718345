// Package command is the program promptfed, one file for each of its commands. A program with methods of its own
// imports the packages that register them (methods.Register), and its main calls Main.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/runtime/version"
	"promptfed/tools/promptfed/runfolder"
	"promptfed/tools/promptfed/signals"
)

// Exit codes.
const (
	done   = 0
	failed = 1
	usage  = 2
)

// usageError marks a wrong command line or configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Main runs the program with the process's arguments and exits.
func Main() {
	ctx, stop := signals.Context(context.Background())
	ctx = runfolder.WithCommandLine(ctx, os.Args)
	code := execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func execute(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use: "promptfed", Short: "Federated prompt learning over frozen vision-language models",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.Version = version.String()
	root.SetVersionTemplate("promptfed {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(initCommand(), importCommand(), runCommand(), sweepCommand(), reportCommand(), listCommand(),
		convertCommand(), bundleCommand(), inspectCommand(), checkCommand(), gradCommand(), partitionCommand(),
		featuresCommand(), pretrainCommand(), predictCommand(),
		exportCommand(), traceCommand(), termsCommand(), benchCommand(), serveCommand(),
		joinCommand(), workCommand(), launchCommand(), certsCommand(), natsConfigCommand(), statusCommand(),
		uiCommand(), runsCommand(), doctorCommand())
	complete(root)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return done
	}
	fmt.Fprintln(os.Stderr, "promptfed: "+oneLine(err))
	var u usageError
	if errors.As(err, &u) || errors.As(err, new(runfolder.Occupied)) ||
		strings.HasPrefix(err.Error(), "unknown command") {
		return usage
	}
	return failed
}

// oneLine joins the lines of an error.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// exactly is cobra.ExactArgs with an error that counts as wrong usage.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s takes %s, not %d: %s", c.Name(), arguments(n), len(args), c.UseLine())}
		}
		return nil
	}
}

// arguments is a number of them in words.
func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprint(n, " arguments")
}

// atLeast is cobra.MinimumNArgs with an error that counts as wrong usage.
func atLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return usageError{fmt.Errorf("%s takes at least %s: %s", c.Name(), arguments(n), c.UseLine())}
		}
		return nil
	}
}
