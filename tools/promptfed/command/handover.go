package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment"
	"promptfed/runtime/version"
	"promptfed/tools/promptfed/cli"
)

// callerVariable holds the version of the program that hands its command line over.
const callerVariable = "PROMPTFED_CALLER"

// Handover returns the commands across machines of a program that links no network: promptfed-net runs the command line
// in its place. The whole program has all other commands and flags too.
func Handover(cli.Outputs) cli.Machines {
	m := cli.Machines{
		OpenCluster: func(context.Context, cli.ClusterFlags) (cli.Cluster, error) { return nil, handOver() },
		Work: func(context.Context, string, cli.QueueOptions, time.Duration, experiment.Config) error {
			return handOver()
		},
	}
	for _, name := range cli.MachineCommands {
		c := cli.NewMachineCommand(name[0], "", nil)
		c.DisableFlagParsing = true
		c.RunE = func(*cobra.Command, []string) error { return handOver() }
		c.SetHelpFunc(func(*cobra.Command, []string) { exit(handOver()) })
		c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			exit(handOver())
			return nil, cobra.ShellCompDirectiveError
		}
		m.Commands = append(m.Commands, c)
	}
	return m
}

// handOver replaces this process by promptfed-net with the same arguments. It returns only an error.
func handOver() error {
	path, err := cli.WholeProgram()
	if err != nil {
		return err
	}
	err = replaceProcess(path, append(os.Environ(), callerVariable+"="+version.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing; commands across machines need it beside promptfed: make build builds "+
			"both, and every archive holds both", path)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// CheckCaller returns an error if a program of another version handed its command line over to this one.
func CheckCaller() error {
	caller, ok := os.LookupEnv(callerVariable)
	os.Unsetenv(callerVariable)
	if ok && caller != version.String() {
		return fmt.Errorf("promptfed is version %s, but promptfed-net beside it is version %s; build both again (make "+
			"build), or take both from one archive", caller, version.String())
	}
	return nil
}

// exit prints the error of a command and ends the process.
func exit(err error) {
	fmt.Fprintln(os.Stderr, "promptfed: "+cli.OneLine(err))
	os.Exit(1)
}
