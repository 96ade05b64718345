package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"promptfed/federation/engine/programs"
	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/convert"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/cli"
)

func inspectCommand() *cobra.Command {
	all, provider := false, ""
	command := &cobra.Command{Use: "inspect PATH|NAME",
		Short: "show what a bundle, checkpoint, ONNX or safetensors file " +
			"or folder of programs contains, or whether a provider works and what it runs"}
	command.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && provider != "" {
			return nil
		}
		return cli.Exactly(1)(c, args)
	}

	command.Flags().BoolVar(&all, "tensors", false, "list every tensor")
	command.Flags().StringVar(&provider, "provider", "",
		"cpu, cuda or auto: show whether it works, and which provider "+
			"runs each operator of a bundle or ONNX file; PATH|NAME is optional")
	result := cli.AddJSON(command, inspected{}, cli.Shape{When: "--provider alone", Value: library{}},
		cli.Shape{When: "a folder of programs", Value: programs.Index{}})
	command.RunE = func(command *cobra.Command, args []string) error {
		options := ort.Options{Provider: provider}
		var lib *library
		if provider != "" {
			var err error
			if lib, err = openLibrary(options); lib == nil {
				return err
			}
			if err != nil || len(args) == 0 {
				return cmp.Or(err, result.Print(*lib, align(lib.rows())))
			}
		}

		if _, err := os.Stat(filepath.Join(args[0], programs.File)); err == nil {
			index, err := programs.Read(args[0])
			if err != nil {
				return err
			}
			lines := convert.Slice(strings.Split(index.Text(), "\n"), printable)
			return result.Print(index, strings.Join(lines, "\n"))
		}

		report, err := bundle.Inspect(args[0])
		if err != nil {
			return err
		}

		inspected := inspectedOf(report, all)
		text := ""
		if inspected.Library = lib; lib != nil {
			text = align(lib.rows())
			if inspected.Placement, err = placementOf(command.Context(), report, options); err != nil {
				return err
			}
		}

		if err := result.Print(inspected, text+inspected.text()); err != nil {
			return err
		}

		if report.Problem != "" && report.Format != string(checkpoint.StateDict) { // any model may have this format
			return fmt.Errorf("%s cannot be converted: the row \"not convertible\" says why", args[0])
		}

		return nil
	}

	return command
}

// inspected is the content of a path. Sizes and scales are nil if they are unknown.
type inspected struct {
	bundle.Report
	Name         string                 `json:"name"`
	Architecture string                 `json:"architecture"`
	Text         *clip.TextArch         `json:"text" shape:"bundle.json"`
	Vision       *clip.VisionArch       `json:"vision" shape:"bundle.json"`
	LogitScale   *float64               `json:"logit_scale"`
	LogitBias    *float64               `json:"logit_bias"`
	Preprocess   *preprocess.Preprocess `json:"preprocess" shape:"bundle.json"`
	Texts        string                 `json:"texts"`  // treatment of texts, in words
	Origin       *bundle.Origin         `json:"origin"` // of a fetched bundle
	Notes        []string               `json:"notes"`
	Library      *library               `json:"onnx_runtime"` // with --provider
	Placement    []placement            `json:"placement"`    // with --provider
}

// inspectedOf describes the content of a path, with all tensors if asked.
func inspectedOf(report bundle.Report, all bool) inspected {
	out := inspected{Report: report}
	if !all {
		out.Tensors = nil
	}

	texts := tokenizer.TextCleaning{}
	if b := report.Bundle; b != nil {
		out.Name, out.Architecture, out.Text, out.Vision = b.Name, b.Architecture, &b.Text, &b.Vision
		out.LogitScale, out.LogitBias, out.Preprocess, out.Notes = &b.LogitScale, &b.LogitBias, &b.Preprocess, b.Notes
		texts = b.Texts
		if b.Origin.Source != "" {
			out.Origin = &b.Origin
		}
	} else if a := report.Arch; a != nil {
		out.Architecture, out.Text, out.Vision, out.Notes = a.Name(), &a.Text, &a.Vision, a.Warnings
		out.LogitScale, out.LogitBias = &a.LogitScale, &a.LogitBias
		texts = a.Texts.TextCleaning
	}

	if texts != (tokenizer.TextCleaning{}) {
		out.Texts = texts.String()
	}

	return out
}

// text describes the content for a terminal.
func (i inspected) text() string {
	head := i.Path + ": " + i.Kind
	if i.Format != "" {
		head += " (" + i.Format + ")"
	}

	out := i.rows()
	for _, p := range i.Placement {
		out = append(out, p.row())
	}

	return printable(head) + "\n" + align(out)
}

// rows are those of a table. The first row is the header.
type rows [][]string

// add adds a row of two columns.
func (r *rows) add(what, format string, a ...any) {
	*r = append(*r, []string{printable(what), printable(fmt.Sprintf(format, a...))})
}

// printable returns text of a file that commands nothing to a terminal.
func printable(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), " ")
}

func (i inspected) rows() rows {
	out := rows{{"what", "value"}}
	add := out.add
	note := "assumed"
	if i.Bundle != nil {
		note = "note"
		add("name", "%s", i.Name)
	}

	if i.Bundle != nil || i.Arch != nil {
		add("architecture", "%s", i.Architecture)
	}

	if model := i.Bundle; model != nil {
		for _, f := range i.Found {
			add(f.What, "%s", f.Value)
		}

		if i.Found == nil {
			add("text tower", "%s", textTower(model.Text))
			add("image tower", "%s", imageTower(model.Vision))
		}

		add("embedding dimension", "%d", model.Text.EmbedDim)
		add("logit scale", "%.4f", model.LogitScale)
		if model.LogitBias != 0 {
			add("logit bias", "%.4f", model.LogitBias)
		}

		add("preprocessing", "%v", model.Preprocess)
	}

	if i.Texts != "" {
		add("texts", "%s", i.Texts)
	}

	if i.Origin != nil {
		add("from", "%s", i.Origin)
	}

	for _, n := range i.Notes {
		add(note, "%s", n)
	}

	if i.Problem != "" {
		add("not convertible", "%s", i.Problem)
	}

	for _, f := range i.Files {
		add("file "+f.Name, "%d bytes", f.Size)
	}

	for _, d := range slices.Sorted(maps.Keys(i.Opsets)) {
		add("operator set "+d, "%d", i.Opsets[d])
	}

	for _, p := range i.Inputs {
		add("input "+p.Name, "%s[%s]", p.DType, strings.Join(p.Shape, ","))
	}

	for _, p := range i.Outputs {
		add("output "+p.Name, "%s[%s]", p.DType, strings.Join(p.Shape, ","))
	}

	for _, op := range slices.Sorted(maps.Keys(i.Ops)) {
		add("operator "+op, "%d", i.Ops[op])
	}

	for _, d := range i.DTypes {
		add("tensors of "+d.DType, "%d, %d elements, %d bytes", d.Tensors, d.Elements, d.Bytes)
	}

	for _, k := range slices.Sorted(maps.Keys(i.Metadata)) {
		add("metadata "+k, "%.80s", i.Metadata[k])
	}

	for _, t := range i.Tensors {
		add(t.Name, "%s%v", t.DType, t.Shape)
	}

	return out
}

func textTower(a clip.TextArch) string {
	if a.Layers == 0 {
		return fmt.Sprintf("width %d, context %d, with the gradient in %s", a.Width, a.Context, bundle.TextGradientFile)
	}
	return fmt.Sprintf("width %d, %d layers, %d heads, context %d, %s", a.Width, a.Layers, a.Heads, a.Context,
		a.Activation)
}

func imageTower(v clip.VisionArch) string {
	switch {
	case v.Width == 0:
		return fmt.Sprintf("image size %d, with the gradient in %s", v.Image, bundle.ImageGradientFile)
	case v.ResNet():
		return fmt.Sprintf("ResNet of width %d, stages of %v blocks, %d heads, image size %d", v.Width, v.Stages,
			v.Heads, v.Image)
	}

	return fmt.Sprintf("width %d, %d layers, %d heads, patch size %d, image size %d, %s", v.Width, v.Layers, v.Heads,
		v.Patch, v.Image, v.Activation)
}

// library is the ONNX Runtime in use.
type library struct {
	Version   string           `json:"version"`
	Path      string           `json:"path"`
	Provider  string           `json:"provider"`  // that was asked for
	Runs      string           `json:"runs"`      // provider that runs; empty if none does
	Fallback  string           `json:"fallback"`  // why it is another one
	Kernels   string           `json:"kernels"`   // why it runs none of promptfed's operators; empty if it does
	Libraries []ort.Dependency `json:"libraries"` // that the provider needs
}

// openLibrary describes the ONNX Runtime in use, and whether a provider runs. With an error, library is nil if there is
// no ONNX Runtime.
func openLibrary(o ort.Options) (*library, error) {
	chosen, why, err := ort.ChooseProvider(o)
	path, version, failed := ort.Library()
	if failed != nil {
		return nil, failed
	}

	library := &library{Version: version, Path: path, Provider: o.Provider}
	if o.Provider != ort.CPU {
		if library.Libraries, failed = ort.CUDALibraries(); failed != nil {
			return nil, failed
		}
	}

	if err != nil {
		return library, err
	}

	if library.Runs = chosen.Provider; why != nil {
		library.Fallback = why.Error()
	}

	if chosen.Kernels() == graph.NoKernels {
		library.Kernels = ort.Cached().Refusal()
	}

	return library, nil
}

func (l *library) rows() rows {
	out := rows{{"what", "value"}, {"ONNX Runtime", l.Version + ", " + l.Path}}
	for _, n := range l.Libraries {
		out.add(n.Name, "%s", map[bool]string{true: "found", false: "missing"}[n.Found])
	}

	switch {
	case l.Runs == "":
	case l.Fallback != "":
		out.add("provider "+l.Provider, "cpu: %s", l.Fallback)
	default:
		out.add("provider "+l.Provider, "%s", cmp.Or(l.Kernels, "runs"))
	}

	return out
}

// placement counts the operators of a graph that a provider runs.
type placement struct {
	Graph     string         `json:"graph"`
	Provider  string         `json:"provider"`
	Operators map[string]int `json:"operators" key:"OPERATOR"`
	// device memory of a captured graph for a batch of 32; absent where it is not known
	Captured int64 `json:"captured_bytes,omitempty"`

	session string // provider of the session
}

// row names operators that another provider leaves to the CPU.
func (p placement) row() []string {
	total, ops := 0, []string(nil)
	for _, op := range slices.Sorted(maps.Keys(p.Operators)) {
		total += p.Operators[op]
		ops = append(ops, fmt.Sprintf("%s %d", op, p.Operators[op]))
	}

	value := fmt.Sprintf("%d operators", total)
	if p.Provider == ort.CPU && p.session != ort.CPU {
		value += ", not run by " + p.session + ": " + strings.Join(ops, ", ")
	}

	if p.Captured > 0 {
		value += fmt.Sprintf(", %d MB for a captured graph of a batch of %d", p.Captured/1e6, someRows)
	}

	return []string{p.Graph + " on " + p.Provider, value}
}

// placementOf counts the operators of a bundle or an ONNX file that each provider runs.
func placementOf(ctx context.Context, report bundle.Report, options ort.Options) (list []placement, err error) {
	plain := options
	options.Placement = true
	add := func(what string, session *ort.Session, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		defer session.Close()

		nodes, err := session.Placement()
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
			list = append(list, placement{Graph: what, Provider: provider, Operators: by[provider],
				session: session.Provider()})
		}

		return nil
	}

	model := report.Bundle
	switch {
	case model == nil && report.Kind == bundle.KindONNX:
		s, err := ort.Open(report.Path, options)
		err = add("graph", s, err)
		return list, err
	case model == nil:
		return nil, cli.Usagef("%s is a %s: --provider is for bundles and ONNX files", report.Path, report.Kind)
	}

	options.WeightsDir = model.WeightsDir()
	plain.WeightsDir = options.WeightsDir
	image, err := model.ImageModel()
	if err != nil {
		return nil, err
	}

	step, err := stepModel(model, options.Provider)
	if err != nil {
		return nil, err
	}

	for _, part := range []struct {
		what  string
		model *onnx.ModelProto
	}{{"image tower", image}, {"training step", step}} {
		var captured int64
		if options.Provider != ort.CPU { // as sessions on a device do
			if captured, err = capturedBytes(ctx, part.model, plain); err != nil {
				return nil, fmt.Errorf("%s: %w", part.what, err)
			}
			if part.model, err = graph.FixSizes(part.model, someSizes(part.model)); err != nil {
				return nil, fmt.Errorf("%s: %w", part.what, err)
			}
		}

		s, err := ort.NewSession(part.model, options)
		if err := add(part.what, s, err); err != nil {
			return nil, err
		}

		for i, p := range list {
			if p.Graph == part.what && p.Provider != ort.CPU {
				list[i].Captured = captured
			}
		}
	}

	return list, nil
}

// capturedBytes returns the device memory that a captured graph takes beside the session that has it, or 0 if it is not
// known.
func capturedBytes(ctx context.Context, model *onnx.ModelProto, o ort.Options) (bytes int64, err error) {
	s, err := ort.NewSession(model, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	if s.FreeMemory() < 0 {
		return 0, nil
	}

	return takenBySecondRun(ctx, s, model, s.FreeMemory)
}

// takenBySecondRun returns how much less memory is free after the second run of some sizes, which gets a captured
// graph, than after the first.
func takenBySecondRun(ctx context.Context, s *ort.Session, m *onnx.ModelProto, memory func() int64) (int64, error) {
	in, free := tensor.Map{}, [2]int64{}
	for name, shape := range someSizes(m) {
		in[name] = tensor.New(shape...)
	}

	for i := range free {
		if _, err := s.Run(ctx, in); err != nil {
			return 0, err
		}
		free[i] = memory()
	}

	return max(0, free[0]-free[1]), nil
}

// someRows is the batch for which inspect shows the graphs of a device.
const someRows = 32

// someSizes returns shapes of a model's inputs for a batch of someRows.
func someSizes(m *onnx.ModelProto) map[string][]int {
	shapes := map[string][]int{}
	for _, in := range onnx.Inputs(m.Graph) {
		for _, d := range in.GetType().GetTensorType().GetShape().GetDim() {
			n := d.GetDimValue()
			if n < 1 {
				n = someRows
			}
			shapes[in.Name] = append(shapes[in.Name], int(n))
		}
	}

	return shapes
}

// stepModel returns the text tower over two classes with the gradient of a prompt of 16 tokens, as training builds it.
func stepModel(b *bundle.Bundle, provider string) (*onnx.ModelProto, error) {
	g := graph.New()
	g.UseKernels(ort.Options{Provider: provider}.Kernels())

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
