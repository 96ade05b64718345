package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/tools/lab/report"
	"promptfed/tools/lab/results"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/command"
)

// printed is what some commands print with --json.
type printed struct {
	by    []string
	shape string
}

// jsonTable is the table of what commands print with --json, with a row for each shape.
func jsonTable() string {
	var rows []printed
	add := func(by string, value any, before string) {
		shape := before + shapeOf(reflect.TypeOf(value))
		i := slices.IndexFunc(rows, func(p printed) bool { return p.shape == shape })
		if i < 0 {
			i, rows = len(rows), append(rows, printed{shape: shape})
		}
		rows[i].by = append(rows[i].by, code(by))
	}

	var walk func(c *cobra.Command)
	walk = func(parent *cobra.Command) {
		for _, s := range cli.Shapes(parent) {
			by, before := strings.TrimPrefix(parent.CommandPath(), "promptfed "), ""
			if s.When != "" {
				by += " (" + s.When + ")"
			}
			if s.Lines {
				before = "on each line "
			}
			add(by, s.Value, before)
		}
		for _, sub := range parent.Commands() {
			walk(sub)
		}
	}

	walk(command.Root())
	add(report.JSONFile, results.JSON{}, "")
	return table(rows, func(p printed) []string { return []string{strings.Join(p.by, ", "), code(p.shape)} }, "command",
		"prints")
}

// shapeOf writes the JSON of a type: [] stands for a list, {} for an object, with its keys in between. A key in
// capitals stands for each of some names.
func shapeOf(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[json.RawMessage]():
		return ""
	case typ.Kind() == reflect.Pointer:
		return shapeOf(typ.Elem())
	case typ.Kind() == reflect.Slice:
		return "[]" + shapeOf(typ.Elem())
	case typ.Kind() == reflect.Map:
		return "{NAME" + shapeOf(typ.Elem()) + "}"
	case typ.Kind() != reflect.Struct || len(keysIn(typ)) == 0:
		return ""
	}

	return "{" + strings.Join(keysIn(typ), ", ") + "}"
}

// keysIn lists the keys of a struct, each with the shape of its value.
func keysIn(t reflect.Type) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch as := f.Tag.Get("shape"); {
		case f.Anonymous && name == "":
			out = append(out, keysIn(f.Type)...)
		case as != "":
			out = append(out, name+"{as in "+as+"}")
		case name != "" && name != "-":
			shape := shapeOf(f.Type)
			if key := f.Tag.Get("key"); key != "" {
				shape = strings.Replace(shape, "NAME", key, 1)
			}
			out = append(out, name+shape)
		}
	}

	return out
}
