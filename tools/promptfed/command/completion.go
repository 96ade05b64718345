package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/configtags"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/federation/pretrain"
	"promptfed/tools/promptfed/runfolder"
)

// complete adds completion of configurations, runs, keys with their values, and metrics. cobra adds the command
// completion, which prints the script for the shell.
func complete(root *cobra.Command) {
	of := map[string]func(dir string) bool{"report": isRun, "predict": isRun, "export": isRun}
	for _, c := range root.Commands() {
		if c.Flags().Lookup("set") != nil {
			c.RegisterFlagCompletionFunc("set", keysFor(c.Name()))
		}
		if c.Flags().Lookup("metric") != nil {
			c.RegisterFlagCompletionFunc("metric", cobra.FixedCompletions(metrics.Names(),
				cobra.ShellCompDirectiveNoFileComp))
		}
		if c.Flags().Lookup("view") != nil {
			c.RegisterFlagCompletionFunc("view", cobra.FixedCompletions(record.Views(),
				cobra.ShellCompDirectiveNoFileComp))
		}
		if c.Flags().Lookup("images") != nil {
			c.MarkFlagDirname("images")
		}
		if is := of[c.Name()]; is != nil {
			c.ValidArgsFunction = folders(is)
		} else if strings.Contains(c.Use, "CONFIG") || strings.Contains(c.Use, "FILE") && c.Name() == "sweep" {
			c.ValidArgsFunction = cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
		} else if c.Name() == "init" {
			c.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		}
	}
}

// isRun reports whether a folder holds a run or a sweep.
func isRun(dir string) bool {
	for _, name := range []string{runfolder.ConfigFile, configs.PlanFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// deepest is the depth below the current folder down to which completion looks for runs: runs/NAME/seed-1.
const deepest = 3

// folders completes folders below runs/ and below the typed folder that satisfy wanted.
func folders(wanted func(dir string) bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var out []string
		var walk func(dir string, depth int)
		walk = func(dir string, depth int) {
			if strings.HasPrefix(dir, typed) && wanted(dir) {
				out = append(out, dir)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || depth == deepest {
				return
			}
			for _, e := range entries {
				if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
					walk(filepath.Join(dir, e.Name()), depth+1)
				}
			}
		}
		walk("runs", 0)
		if dir := filepath.Dir(typed + "x"); dir != "." && dir != "runs" && !strings.HasPrefix(dir, "runs/") {
			walk(dir, deepest-1)
		}
		slices.Sort(out)
		return slices.Compact(out), cobra.ShellCompDirectiveDefault
	}
}

// keysFor completes the keys of --set, and the values of a typed key.
func keysFor(command string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		const silent = cobra.ShellCompDirectiveNoFileComp
		if key, _, ok := strings.Cut(typed, "="); ok {
			values := valuesOf(key)
			for i, v := range values {
				values[i] = key + "=" + v
			}
			if values == nil {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return values, silent
		}
		var conf any = experiment.Defaults()
		if command == "pretrain" {
			conf = pretrain.Defaults()
		}
		var out []string
		for key := range configtags.Flatten(conf) {
			out = append(out, key+"=")
		}
		if command != "pretrain" {
			for _, d := range methods.Table() {
				for _, o := range d.Options() {
					key := "options." + o.Name
					if d.Wrapper() {
						key = "options." + d.Name + "." + o.Name
					}
					out = append(out, key+"=")
				}
			}
		}
		slices.Sort(out)
		return slices.Compact(out), silent | cobra.ShellCompDirectiveNoSpace
	}
}

// valuesOf returns the values of a key that has a list of values, and nil for other keys.
func valuesOf(key string) []string {
	var out []string
	switch key {
	case "method", "with":
		for _, d := range methods.Table() {
			if d.Wrapper() == (key == "with") {
				out = append(out, d.Name)
			}
		}
	case "data.set":
		for _, k := range sets.Kinds() {
			out = append(out, k.Name)
		}
	case "partition.kind":
		for _, k := range partition.Kinds() {
			out = append(out, k.Name)
		}
	case "eval.view":
		out = record.Views()
	case "runtime.provider":
		out = []string{"cpu", "cuda", "auto"}
	default:
		if _, ok := configtags.Flatten(experiment.Defaults())[key].(bool); ok {
			out = []string{"true", "false"}
		}
	}
	return out
}
