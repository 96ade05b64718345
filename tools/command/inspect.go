package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

func inspectCommand() *cobra.Command {
	all, provider := false, ""
	c := &cobra.Command{Use: "inspect PATH", Short: "show what is in a bundle, a checkpoint, an ONNX file or a " +
		"safetensors file, or what a provider needs and runs"}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && provider != "" {
			return nil
		}
		return exactly(1)(c, args)
	}
	c.Flags().BoolVar(&all, "tensors", false, "list every tensor")
	c.Flags().StringVar(&provider, "provider", "", "cpu, cuda or auto: show whether it works, and which provider runs "+
		"each operator of a bundle or an ONNX file; PATH may be left out")
	c.RunE = func(_ *cobra.Command, args []string) error {
		var rows [][]string
		if provider != "" {
			o := ort.Options{Provider: provider}
			library, err := libraryRows(o)
			fmt.Print(align(library))
			if err != nil || len(args) == 0 {
				return err
			}
		}
		r, err := bundle.Inspect(args[0])
		if err == nil && provider != "" {
			rows, err = placementRows(r, ort.Options{Provider: provider})
		}
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s", r.Path, r.Kind)
		if r.Format != "" {
			fmt.Printf(" (%s)", r.Format)
		}
		fmt.Println()
		fmt.Print(align(append(inspectRows(r, all), rows...)))
		return nil
	}
	return c
}

func inspectRows(r bundle.Report, all bool) [][]string {
	rows := [][]string{{"what", "value"}}
	add := func(what, format string, a ...any) { rows = append(rows, []string{what, fmt.Sprintf(format, a...)}) }
	if m := r.Bundle; m != nil {
		add("name", "%s", m.Name)
		add("architecture", "%s", m.Architecture)
		for _, f := range r.Found {
			add(f.What, "%s", f.Value)
		}
		if r.Found == nil {
			add("text tower", "width %d, %d layers, %d heads, context %d, %s", m.Text.Width, m.Text.Layers,
				m.Text.Heads, m.Text.Context, m.Text.Activation)
			add("image tower", "%s", imageTower(m.Vision))
		}
		add("embedding dimension", "%d", m.Text.EmbedDim)
		add("logit scale", "%.4f", m.LogitScale)
		add("preprocessing", "%+v", m.Preprocess)
		for _, n := range m.Notes {
			add("note", "%s", n)
		}
	} else if a := r.Arch; a != nil {
		add("architecture", "%s", a.Name())
		for _, w := range a.Warnings {
			add("assumed", "%s", w)
		}
	}
	if r.Problem != "" {
		add("not convertible", "%s", r.Problem)
	}
	for _, f := range r.Files {
		add("file "+f.Name, "%d bytes", f.Size)
	}
	for _, d := range slices.Sorted(maps.Keys(r.Opsets)) {
		add("operator set "+d, "%d", r.Opsets[d])
	}
	for _, p := range r.Inputs {
		add("input "+p.Name, "%s[%s]", p.DType, strings.Join(p.Shape, ","))
	}
	for _, p := range r.Outputs {
		add("output "+p.Name, "%s[%s]", p.DType, strings.Join(p.Shape, ","))
	}
	for _, op := range slices.Sorted(maps.Keys(r.Ops)) {
		add("operator "+op, "%d", r.Ops[op])
	}
	for _, d := range r.DTypes {
		add("tensors of "+d.DType, "%d, %d elements, %d bytes", d.Tensors, d.Elements, d.Bytes)
	}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		add("metadata "+k, "%.80s", r.Metadata[k])
	}
	if all {
		for _, t := range r.Tensors {
			add(t.Name, "%s%v", t.DType, t.Shape)
		}
	}
	return rows
}

func imageTower(v clip.VisionArch) string {
	if v.ResNet() {
		return fmt.Sprintf("ResNet of width %d, stages of %v blocks, %d heads, images of %d", v.Width, v.Stages,
			v.Heads, v.Image)
	}
	return fmt.Sprintf("width %d, %d layers, %d heads, patches of %d, images of %d, %s", v.Width, v.Layers, v.Heads,
		v.Patch, v.Image, v.Activation)
}
