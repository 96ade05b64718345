package main

import (
	"fmt"
	"strings"

	"promptfed/configs"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/federation/pretrain"
	"promptfed/tools/lab/dasslimport"
)

// tables returns all tables by name.
func tables(root string) (map[string]string, error) {
	all, err := packages(root)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"methods":       methodTable(),
		"options":       optionTables(),
		"configuration": keyTable(allKeys(experiment.Defaults())),
		"sweep":         keyTable(allKeys(configs.SweepFile{})),
		"facts":         factTable(),
		"counts":        keyTable(allKeys(configs.CountsFile{})),
		"pretrain":      keyTable(allKeys(pretrain.Defaults())),
		"datasets":      dataTable(),
		"partitions":    partitionTable(),
		"packages":      packageTable(all),
		"papers":        paperList(),
		"moving":        movingTable(),
		"metrics":       metricTable(),
	}, nil
}

func methodTable() string {
	rows := [][]string{{"name", "method", "is a", "paper"}}
	for _, e := range methods.Table() {
		is := "method"
		if e.Wrapper() {
			is = "wrapper"
		}
		rows = append(rows, []string{code(e.Name), e.Title, is, e.Paper})
	}
	return markdown(rows)
}

func optionTables() string {
	var b strings.Builder
	for _, e := range methods.Table() {
		options := e.Options()
		if len(options) == 0 {
			continue
		}
		rows := [][]string{{"option", "default", "meaning"}}
		for _, o := range options {
			rows = append(rows, []string{code(o.Name), code(o.Default), o.Help})
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n", code(e.Name), markdown(rows))
	}
	return b.String()
}

func paperList() string {
	var b strings.Builder
	for _, e := range methods.Table() {
		fmt.Fprintf(&b, "- %s, %s: %s\n", code(e.Name), e.Title, e.Paper)
	}
	return b.String()
}

func keyTable(list []key) string {
	rows := [][]string{{"key", "is", "default", "meaning"}}
	for _, k := range list {
		rows = append(rows, []string{code(k.name), k.kind, code(k.value), k.help})
	}
	return markdown(rows)
}

func factTable() string {
	rows := [][]string{{"key", "meaning"}}
	for _, f := range experiment.AllFacts() {
		rows = append(rows, []string{code(f.Name), f.Help})
	}
	return markdown(rows)
}

func dataTable() string {
	rows := [][]string{{"`data.set`", "what it is", "what lies under `data.root`", "where it comes from"}}
	for _, k := range sets.Kinds() {
		rows = append(rows, []string{code(k.Name), k.About, k.Expects, k.Source})
	}
	return markdown(rows)
}

func partitionTable() string {
	rows := [][]string{{"`partition.kind`", "what it does", "source"}}
	for _, k := range partition.Kinds() {
		rows = append(rows, []string{code(k.Name), k.About, k.Source})
	}
	return markdown(rows)
}

func movingTable() string {
	rows := [][]string{{"key", "flag", "of", "here", "what differs"}}
	for _, s := range dasslimport.Settings() {
		flag, ours := "", code(s.Key)
		if s.Flag != "" {
			if flag = code("--" + s.Flag); s.OverridesFiles {
				flag += " wins"
			}
		}
		theirs := code(s.Dassl)
		if strings.HasPrefix(s.Dassl, "--") {
			theirs = ""
		}
		switch {
		case strings.Contains(s.Key, " "):
			ours = s.Key
		case s.HasNoEffect():
			ours = "no effect on results"
		case s.Key == "":
			ours = "no key"
		}
		rows = append(rows, []string{theirs, flag, code(s.Trainer), ours, s.Differs()})
	}
	return markdown(rows)
}
