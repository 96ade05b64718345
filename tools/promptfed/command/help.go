package command

import (
	_ "embed"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/tools/promptfed/cli"
)

// groups are the groups of commands in the help, with their commands.
var groups = []struct{ id, title, commands string }{
	{"start", "Start here:", "init run predict ui doctor"},
	{"experiments", "Experiments:", "sweep list partition import"},
	{"models", "Models:", "pull convert bundle inspect check pretrain"},
	{"machines", "Across machines:", "serve join status certs work launch"},
	{"results", "Results:", "report runs export"},
	{"advanced", "Advanced:", "features terms trace programs evaluate grad bench completion help"},
}

// examples are command lines, each an example in the help of the command that it calls.
//
//go:embed examples.txt
var examples string

// describe puts the commands into groups and gives them their examples.
func describe(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, name := range strings.Fields(g.commands) {
			if c, _, err := root.Find([]string{name}); err == nil && c != root {
				c.GroupID = g.id
			}
		}
	}

	root.SetHelpCommandGroupID("advanced")
	root.SetCompletionCommandGroupID("advanced")
	for line := range strings.Lines(examples) {
		_, words, _ := strings.Cut(line, "promptfed ")
		if c, _, err := root.Find(strings.Fields(words)); err == nil && c != root {
			c.Example = strings.TrimPrefix(c.Example+"\n  "+strings.TrimSpace(line), "\n")
		}
	}
}

// checkTopics adds the commands help and completion, which refuse what is no command and no shell.
func checkTopics(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	cli.Chooses(completion)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, topic []string) error {
		command, rest, err := root.Find(topic)
		if err == nil && command.HasSubCommands() && len(rest) > 0 {
			err = command.ValidateArgs(rest)
		}
		return err
	}
}
