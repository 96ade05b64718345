// Package command is the program promptfed: it joins the groups of commands, passes reports and experiment trackers to
// the commands that train, and completes words in a shell. The main function of a program with its own methods imports
// the packages that register these methods (methods.Register), and calls Main.
package command
