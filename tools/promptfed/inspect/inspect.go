package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/models/tokenizer"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/cli"
)

func inspectCommand() *cobra.Command {
	all, provider := false, ""
	c := &cobra.Command{Use: "inspect PATH|NAME", Short: "show what a bundle, checkpoint, ONNX or safetensors file " +
		"contains, or whether a provider works and what it runs"}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && provider != "" {
			return nil
		}
		return cli.Exactly(1)(c, args)
	}
	c.Flags().BoolVar(&all, "tensors", false, "list every tensor")
	c.Flags().StringVar(&provider, "provider", "", "cpu, cuda or auto: show whether it works, and which provider "+
		"runs each operator of a bundle or ONNX file; PATH|NAME is optional")
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
		fmt.Print(inspected(r, append(inspectRows(r, all), rows...)))
		if r.Problem != "" && r.Format != string(checkpoint.StateDict) { // any model may have this format
			return fmt.Errorf("%s cannot be converted: the row \"not convertible\" says why", args[0])
		}
		return nil
	}
	return c
}

func inspected(r bundle.Report, rows [][]string) string {
	head := r.Path + ": " + r.Kind
	if r.Format != "" {
		head += " (" + r.Format + ")"
	}
	return head + "\n" + align(rows)
}

func inspectRows(r bundle.Report, all bool) [][]string {
	rows := [][]string{{"what", "value"}}
	add := func(what, format string, a ...any) { rows = append(rows, []string{what, fmt.Sprintf(format, a...)}) }
	texts := func(x tokenizer.TextCleaning) {
		if x != (tokenizer.TextCleaning{}) {
			add("texts", "%s", x)
		}
	}
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
		if m.LogitBias != 0 {
			add("logit bias", "%.4f", m.LogitBias)
		}
		add("preprocessing", "%v", m.Preprocess)
		texts(m.Texts)
		if m.Origin.Source != "" {
			add("from", "%s", m.Origin)
		}
		for _, n := range m.Notes {
			add("note", "%s", n)
		}
	} else if a := r.Arch; a != nil {
		add("architecture", "%s", a.Name())
		texts(a.Texts.TextCleaning)
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
		return fmt.Sprintf("ResNet of width %d, stages of %v blocks, %d heads, image size %d", v.Width, v.Stages,
			v.Heads, v.Image)
	}
	return fmt.Sprintf("width %d, %d layers, %d heads, patch size %d, image size %d, %s", v.Width, v.Layers, v.Heads,
		v.Patch, v.Image, v.Activation)
}

// libraryRows describes the ONNX Runtime in use. For the provider cuda it lists the libraries that the provider needs,
// and whether the provider runs.
func libraryRows(o ort.Options) (rows [][]string, err error) {
	_, why, err := ort.ChooseProvider(o)
	path, version, failed := ort.Library()
	if failed != nil {
		return nil, failed
	}
	rows = [][]string{{"what", "value"}, {"ONNX Runtime", version + ", " + path}}
	if o.Provider != ort.CPU {
		needed, failed := ort.CUDALibraries()
		if failed != nil {
			return nil, failed
		}
		for _, n := range needed {
			rows = append(rows, []string{n.Name, map[bool]string{true: "found", false: "missing"}[n.Found]})
		}
	}
	switch {
	case err != nil:
		return rows, err
	case why != nil:
		return append(rows, []string{"provider " + o.Provider, "cpu: " + why.Error()}), nil
	}
	return append(rows, []string{"provider " + o.Provider, "runs"}), nil
}

// placementRows counts the operators of a bundle or an ONNX file that each provider runs. It names operators that
// another provider leaves to the CPU.
func placementRows(r bundle.Report, o ort.Options) (rows [][]string, err error) {
	o.Placement = true
	add := func(what string, s *ort.Session, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		defer s.Close()
		nodes, err := s.Placement()
		if err != nil {
			return err
		}
		by := map[string]map[string]int{}
		for _, n := range nodes {
			if by[n.Provider] == nil {
				by[n.Provider] = map[string]int{}
			}
			by[n.Provider][n.Operator]++
		}
		for _, provider := range slices.Sorted(maps.Keys(by)) {
			total, ops := 0, []string(nil)
			for _, op := range slices.Sorted(maps.Keys(by[provider])) {
				total += by[provider][op]
				ops = append(ops, fmt.Sprintf("%s %d", op, by[provider][op]))
			}
			value := fmt.Sprintf("%d operators", total)
			if provider == ort.CPU && s.Provider() != ort.CPU {
				value += ", not run by " + s.Provider() + ": " + strings.Join(ops, ", ")
			}
			rows = append(rows, []string{what + " on " + provider, value})
		}
		return nil
	}
	b := r.Bundle
	switch {
	case b == nil && r.Kind == bundle.KindONNX:
		s, err := ort.Open(r.Path, o)
		return rows, add("graph", s, err)
	case b == nil:
		return nil, cli.Usagef("%s is a %s: --provider is for bundles and ONNX files", r.Path, r.Kind)
	}
	o.WeightsDir = b.WeightsDir()
	image, err := b.ImageModel()
	if err != nil {
		return nil, err
	}
	step, err := stepModel(b, o.Provider)
	if err != nil {
		return nil, err
	}
	s, err := ort.NewSession(image, o)
	if err := add("image tower", s, err); err != nil {
		return nil, err
	}
	s, err = ort.NewSession(step, o)
	return rows, add("training step", s, err)
}

// stepModel returns the text tower over two classes with the gradient of a prompt of 16 tokens, as training builds it.
func stepModel(b *bundle.Bundle, provider string) (*onnx.ModelProto, error) {
	g := graph.New()
	if provider == ort.CPU {
		g.UseKernels()
	}
	ctx := g.Input("ctx", graph.Float, graph.Static(16, b.Text.Width))
	features, err := b.Prompts(g, []string{"cat", "dog"}, []clip.Prompt{{Ctx: ctx}})
	if err != nil {
		return nil, err
	}
	loss := features[0].Mul(features[0]).Sum()
	gradient, err := grad.Of(loss, ctx)
	if err != nil {
		return nil, err
	}
	return graph.Model(graph.Output{Name: "loss", Node: loss}, graph.Output{Name: "grad/ctx", Node: gradient[0]})
}

// align sets rows in columns. The first row is the header; the first two columns are text.
func align(rows [][]string) string { return tables.PlainText(rows, 2) }
