package command

import (
	"path/filepath"
	"reflect"
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
	"promptfed/runtime/convert"
	"promptfed/tools/lab/pretrain"
	"promptfed/tools/promptfed/runfolder"
)

// complete adds completion of configurations, runs, keys with their values, and metrics. cobra adds the command
// completion, which prints the script for the shell.
func complete(root *cobra.Command) {
	const silent = cobra.ShellCompDirectiveNoFileComp
	for _, command := range root.Commands() {
		for flag, values := range map[string]cobra.CompletionFunc{"set": keysFor(command.Name()),
			"metric": cobra.FixedCompletions(metrics.Names(), silent),
			"view":   cobra.FixedCompletions(record.Views(), silent),
			"images": cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)} {
			if command.Flags().Lookup(flag) != nil {
				command.RegisterFlagCompletionFunc(flag, values)
			}
		}

		switch {
		case slices.Contains([]string{"report", "predict", "export"}, command.Name()):
			command.ValidArgsFunction = runs
		case strings.Contains(command.Use, "CONFIG"), command.Name() == "sweep":
			command.ValidArgsFunction = cobra.FixedCompletions([]string{"yaml", "yml"},
				cobra.ShellCompDirectiveFilterFileExt)
		case command.Name() == "init":
			command.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		}
	}
}

// runs completes folders of runs and sweeps in runs/, down to the depth of runs/NAME/seed-1, and in the typed folder,
// which may be / and is therefore searched to one level below only.
func runs(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	levels := map[string]int{"runs": 4}
	if typed != "" {
		levels[typed+"*"] = 2
	}

	var out []string
	for place, n := range levels {
		for depth := range n {
			for _, file := range []string{runfolder.ConfigFile, configs.PlanFile} {
				found, _ := filepath.Glob(filepath.Join(place+strings.Repeat("/*", depth), file))
				for _, path := range found {
					if dir := filepath.Dir(path); strings.HasPrefix(dir, typed) {
						out = append(out, dir)
					}
				}
			}
		}
	}

	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveDefault
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

		if slices.Contains([]string{"bench", "evaluate", "export", "predict"}, command) { // see cli.RuntimeOnly
			out = slices.DeleteFunc(out, func(key string) bool { return !strings.HasPrefix(key, "runtime.") })
		}

		slices.Sort(out)
		return slices.Compact(out), silent | cobra.ShellCompDirectiveNoSpace
	}
}

// valuesOf returns the values of a key that has a list of values, and nil for other keys.
func valuesOf(key string) (out []string) {
	switch key {
	case "method", "with":
		for _, d := range methods.Table() {
			if d.Wrapper() == (key == "with") {
				out = append(out, d.Name)
			}
		}
		return out
	case "data.set":
		return convert.Slice(sets.Kinds(), func(k sets.Kind) string { return k.Name })
	case "partition.kind":
		return convert.Slice(partition.Kinds(), func(k partition.Kind) string { return k.Name })
	}

	for _, leaf := range configtags.Leaves(experiment.Defaults()) {
		words := leaf.Field.Tag.Get("in")
		switch kind := leaf.Value.Kind(); {
		case leaf.Name != key:
		case kind == reflect.Bool:
			return []string{"true", "false"}
		case kind == reflect.String && words != "":
			return strings.Split(words, "|")
		}
	}

	return nil
}
