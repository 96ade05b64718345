package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/models/clip"
)

func inspectCommand() *cobra.Command {
	all := false
	c := &cobra.Command{Use: "inspect PATH", Args: exactly(1), Short: "show what is in a bundle, a checkpoint, an " +
		"ONNX file or a safetensors file"}
	c.Flags().BoolVar(&all, "tensors", false, "list every tensor")
	c.RunE = func(_ *cobra.Command, args []string) error {
		r, err := bundle.Inspect(args[0])
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s", r.Path, r.Kind)
		if r.Format != "" {
			fmt.Printf(" (%s)", r.Format)
		}
		fmt.Println()
		fmt.Print(align(inspectRows(r, all)))
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
