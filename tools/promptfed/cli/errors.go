package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/runtime/convert"
	"promptfed/tools/promptfed/runfolder"
)

// usageError is a wrong command line or configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as wrong usage, for which the program exits with code 2.
func Usage(err error) error { return usageError{err} }

// overTime is work that took too long.
type overTime struct{ error }

// OverTime marks an error as work that took too long, for which the program exits with code 3.
func OverTime(err error) error { return overTime{err} }

// ExitCode returns the exit code of the program for an error: 2 for wrong usage, 3 for work that took too long, and 1
// for other failures.
func ExitCode(err error) int {
	switch {
	case IsUsage(err):
		return 2
	case errors.As(err, new(overTime)):
		return 3
	}
	return 1
}

// Usagef formats an error, as fmt.Errorf does, and marks it as wrong usage.
func Usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

// IsUsage reports whether an error means wrong usage: of the command line, a configuration or a run folder.
func IsUsage(err error) bool {
	return errors.As(err, new(usageError)) || errors.As(err, new(runfolder.Occupied))
}

// AsUsage marks an error of a configuration as wrong usage. Errors of files, of this machine and of cancelled contexts
// stay as they are.
func AsUsage(err error) error {
	if errors.As(err, new(*fs.PathError)) || errors.As(err, new(experiment.MachineError)) ||
		errors.Is(err, context.Canceled) {
		return err
	}
	return Usage(err)
}

// Needed returns the usage error of a command without a flag or argument that it needs.
func Needed(command, flags string) error { return Usagef("%s needs %s", command, flags) }

// Stopped returns the error of interrupted work, with the command line that continues it.
func Stopped(ctx context.Context) error {
	return fmt.Errorf("stopped; to continue: %s", runfolder.CommandWith(ctx, "--resume"))
}

// Exactly is cobra.ExactArgs with a usage error.
func Exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return Usagef("%s takes %s, not %d: %s%s", c.Name(), experiment.CountInWords(n, "argument"), len(args),
				c.UseLine(), redirected(c, args))
		}
		return nil
	}
}

// AtLeast is cobra.MinimumNArgs with a usage error.
func AtLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return Usagef("%s takes at least %s: %s", c.Name(), experiment.CountInWords(n, "argument"), c.UseLine())
		}
		return nil
	}
}

// Group returns a command that only holds others.
func Group(name, short string, commands ...*cobra.Command) *cobra.Command {
	names := strings.Join(convert.Slice(commands, (*cobra.Command).Name), "|")
	c := &cobra.Command{Use: name + " " + names, Short: short}
	c.AddCommand(commands...)
	return Chooses(c)
}

// Chooses makes a command with others below it print its help, and refuse the name of no command with what to use.
func Chooses(command *cobra.Command) *cobra.Command {
	command.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	command.Args = func(_ *cobra.Command, args []string) error {
		var names []string
		for _, sub := range command.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		switch {
		case len(args) == 0 && command.HasParent():
			return Usagef("%s needs a command: use %s", command.CommandPath(), configtags.Alternatives(names))
		case len(args) == 0:
			return nil
		}
		return Usagef("there is no command %q: %s", command.CommandPath()+" "+args[0],
			configtags.Suggest(args[0], names, command.CommandPath()+" --help lists all"))
	}

	return command
}
