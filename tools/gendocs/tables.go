package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"promptfed/configs"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/facts"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/tools/lab/dasslimport"
	"promptfed/tools/lab/pretrain"
)

// tables returns all tables by name.
func tables(root string) (map[string]string, error) {
	global, personal, err := resultTables(filepath.Join(root, "docs", "results.csv"))
	if err != nil {
		return nil, err
	}

	papers, err := paperTables(root)
	if err != nil {
		return nil, err
	}

	return map[string]string{
		"papers":           papers,
		"methods":          methodTable(),
		"options":          optionTables(),
		"configuration":    keyTable(experiment.Defaults()),
		"sweep":            keyTable(configs.SweepFile{}),
		"facts":            factTable(),
		"counts":           keyTable(configs.CountsFile{}),
		"pretrain":         keyTable(pretrain.Defaults()),
		"datasets":         dataTable(),
		"partitions":       partitionTable(),
		"moving":           movingTable(),
		"metrics":          metricTable(),
		"json":             jsonTable(),
		"results-global":   global,
		"results-personal": personal,
	}, nil
}

// table returns a Markdown table with a row for each element of a list.
func table[T any](list []T, row func(T) []string, heads ...string) string {
	var out strings.Builder
	add := func(cells []string) {
		for _, c := range cells {
			out.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		out.WriteString("|\n")
	}

	add(heads)
	out.WriteString(strings.Repeat("|---", len(heads)) + "|\n")
	for _, e := range list {
		add(row(e))
	}

	return out.String()
}

func methodTable() string {
	return table(methods.Table(), func(e layer.Def) []string {
		is := "method"
		if e.Wrapper() {
			is = "wrapper"
		}
		return []string{code(e.Name), e.Title, is, e.Paper}
	}, "name", "method", "is a", "paper")
}

func optionTables() string {
	var b strings.Builder
	for _, e := range methods.Table() {
		if options := e.Options(); len(options) > 0 {
			fmt.Fprintf(&b, "### %s\n\n%s\n", code(e.Name), table(options, func(o layer.Option) []string {
				return []string{code(o.Name), code(o.Default), o.Help}
			}, "option", "default", "meaning"))
		}
	}

	return b.String()
}

func keyTable(config any) string {
	return table(allKeys(config), func(k key) []string {
		return []string{code(k.name), k.kind, code(k.value), k.help}
	}, "key", "is", "default", "meaning")
}

func factTable() string {
	return table(experiment.AllFacts(), func(f facts.Fact) []string { return []string{code(f.Name), f.Help} }, "key",
		"meaning")
}

func dataTable() string {
	return table(sets.Kinds(), func(k sets.Kind) []string {
		return []string{code(k.Name), k.About, k.Expects, k.Source}
	}, "`data.set`", "what it is", "what lies under `data.root`", "where it comes from")
}

func partitionTable() string {
	return table(partition.Kinds(), func(k partition.Kind) []string {
		return []string{code(k.Name), k.About, k.Source}
	}, "`partition.kind`", "what it does", "source")
}

func movingTable() string {
	return table(dasslimport.Settings(), func(setting dasslimport.Setting) []string {
		flag, theirs, ours := "", code(setting.Dassl), code(setting.Key)
		if setting.Flag != "" {
			if flag = code("--" + setting.Flag); setting.OverridesFiles {
				flag += " wins"
			}
		}

		if strings.HasPrefix(setting.Dassl, "--") {
			theirs = ""
		}

		switch {
		case strings.Contains(setting.Key, " "):
			ours = setting.Key
		case setting.HasNoEffect():
			ours = "no effect on results"
		case setting.Key == "":
			ours = "no key"
		}

		return []string{theirs, flag, code(setting.Trainer), ours, setting.Differs()}
	}, "key", "flag", "of", "here", "what differs")
}

// metricTable is the glossary of all metrics in the order of columns.
func metricTable() string {
	return table(metrics.Definitions(), func(d metrics.Definition) []string {
		name := code(d.Form())
		if d.Key != "" && d.Key != d.Name {
			name += ", in records " + code(d.Key)
		}
		better := "higher"
		if d.Lower {
			better = "lower"
		}
		return []string{name, d.Title, metricBounds(d), better, metrics.DescribeWindow(d.Window), d.Merge, d.Exists,
			d.Privacy}
	}, "metric", "is", "unit, bounds", "better", "window", "merges as", "exists", "privacy")
}

// metricBounds are the unit of a metric and the bounds of its values.
func metricBounds(definition metrics.Definition) string {
	unit := string(definition.Unit)
	if definition.Unit == metrics.Plain {
		unit = "number"
	}

	switch {
	case definition.Unit == metrics.Percent:
		return "share of 1, shown in %"
	case math.IsInf(definition.Low, -1):
		return unit
	case math.IsInf(definition.High, 1):
		return fmt.Sprintf("%s, at least %v", unit, definition.Low)
	}

	return fmt.Sprintf("%s, [%v, %v]", unit, definition.Low, definition.High)
}
