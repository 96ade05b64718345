package inspect

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/grad"
	"promptfed/runtime/gradtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
	"promptfed/tools/promptfed/cli"
)

// allowed is the largest relative difference between a float32 gradient and finite differences.
const allowed = 1e-2

func checkCommand() *cobra.Command {
	var of, wrt []string
	var sizes []string
	c := &cobra.Command{
		Use: "check BUNDLE | check GRAPH.onnx [--of OUTPUT] [--wrt INPUT]", Args: cli.Exactly(1),
		Short: "check a bundle or an ONNX graph: files, forward pass, gradients against finite differences",
	}
	c.Flags().StringSliceVar(&of, "of", nil, "outputs of a graph (default: all floating-point ones)")
	c.Flags().StringSliceVar(&wrt, "wrt", nil, "inputs of a graph (default: all floating-point ones)")
	c.Flags().StringSliceVar(&sizes, "size", []string{"2"}, "sizes of dynamic dimensions: N for all, NAME=N for one")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var lines [][]string
		var err error
		if strings.HasSuffix(args[0], ".onnx") {
			lines, err = checkGraph(cmd.Context(), args[0], of, wrt, sizes)
		} else {
			lines, err = checkBundle(cmd.Context(), args[0])
		}
		if len(lines) > 0 {
			fmt.Print(align(append([][]string{{"what", "result", "error"}}, lines...)))
		}
		return err
	}
	return c
}

func gradientLines(results []gradtest.Result, what string) ([][]string, error) {
	var lines [][]string
	var err error
	for _, r := range results {
		verdict, limit := "ok", allowed
		if r.Rounding < 10*allowed { // the precision of finite differences
			limit = max(allowed, r.Rounding)
		}
		if !(r.RelErr <= limit) {
			verdict = "WRONG"
			err = fmt.Errorf("the gradient of %s with respect to %s is off by %.2g, more than %.2g", what, r.Input,
				r.RelErr, limit)
		}
		shown := fmt.Sprintf("%.1e", r.RelErr)
		switch {
		case math.IsInf(r.Rounding, 1):
			shown = "no effect"
		case r.RelErr < r.Rounding:
			shown = fmt.Sprintf("below %.1e", r.Rounding)
		}
		lines = append(lines, []string{"gradient of " + what + " by " + r.Input, verdict, shown})
	}
	return lines, err
}

func checkBundle(ctx context.Context, name string) ([][]string, error) {
	b, err := bundle.Find(name)
	if err != nil {
		return nil, err
	}
	if err := b.Verify(); err != nil {
		return nil, err
	}
	lines := [][]string{{"files against their SHA-256", "ok", ""}}
	o := ort.Options{WeightsDir: b.WeightsDir()}
	more, err := checkImageTower(ctx, b, o)
	if lines = append(lines, more...); err != nil {
		return lines, err
	}
	if more, err = checkLengths(ctx, b, o); err != nil {
		return append(lines, more...), err
	}
	lines = append(lines, more...)

	g := graph.New()
	classes := []string{"dog", "house", "red car"}
	a, c := g.Input("a", graph.Float, graph.Static(4, b.Text.Width)), g.Input("b", graph.Float, graph.Static(7,
		b.Text.Width))
	out, err := b.Prompts(g, classes, []clip.Prompt{{Ctx: a}, {Ctx: c}})
	if err != nil {
		return lines, err
	}
	plain, err := b.Prompts(g, classes, []clip.Prompt{{Ctx: c.Slice(0, 0, 7), Class: clip.Front}})
	if err != nil {
		return lines, err
	}
	outputs := []graph.Output{{Name: "text", Node: out[0].L2Normalize()}, {Name: "longer text",
		Node: out[1].L2Normalize()}, {Name: "name in front", Node: plain[0].L2Normalize()}}
	feeds := tensor.Map{"a": randomTensor(4, b.Text.Width), "b": randomTensor(7, b.Text.Width)}
	results, err := gradtest.Check(ctx, outputs, []string{"a", "b"}, feeds, gradtest.Options{Session: o})
	if err != nil {
		return lines, fmt.Errorf("text tower: %w", err)
	}
	more, err = gradientLines(results, "the text tower")
	return append(lines, more...), err
}

func forward(ctx context.Context, model *onnx.ModelProto, o ort.Options, feeds tensor.Map, output string) (float64,
	error) {
	out, err := ort.RunOnce(ctx, model, o, feeds, output)
	if err != nil {
		return 0, err
	}
	if i := out[output].NonFinite(); i >= 0 {
		return 0, fmt.Errorf("output %s: element %d is not a number", output, i)
	}
	return out[output].Norm() / math.Sqrt(float64(out[output].Shape[0])), nil
}

func randomTensor(shape ...int) *tensor.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	t := tensor.New(shape...)
	for i := range t.Data {
		t.Data[i] = float32(r.NormFloat64())
	}
	return t
}

// checkGraph compares the gradients of an ONNX file with finite differences at a random point.
func checkGraph(ctx context.Context, path string, of, wrt, sizes []string) ([][]string, error) {
	f, err := graph.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(of) == 0 {
		for _, o := range f.Outputs {
			if graph.Differentiable(o.Node.DType()) {
				of = append(of, o.Name)
			}
		}
	}
	open, err := openSizes(sizes)
	if err != nil {
		return nil, err
	}
	fitImages(f, open)
	feeds, floats, err := inputsOf(f, open)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(wrt) == 0 {
		wrt = floats
	}
	if len(wrt) == 0 || len(of) == 0 {
		var in []string
		for _, n := range f.Inputs() {
			in = append(in, fmt.Sprintf("%s %v%v", n.Name(), n.DType(), n.Shape()))
		}
		return nil, fmt.Errorf("%s has no gradient: no floating-point output depends on a floating-point input; its "+
			"inputs are %s", path, strings.Join(in, ", "))
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	options := gradtest.Options{Session: ort.Options{WeightsDir: dir}}
	if outputs, err := grad.SelectOutputs(f, of, wrt); err == nil && gradtest.NonSmooth(outputs...) {
		options.NonSmooth, options.Directions, options.Elements, options.Step = true, 9, -1, 5e-4
	}
	results, err := checkFile(ctx, f, of, wrt, feeds, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return gradientLines(results, strings.Join(of, "+"))
}

// checkFile checks named outputs and inputs of a file. It computes inputs of half precision in float32, because finite
// differences need smaller steps than half precision can represent.
func checkFile(ctx context.Context, f *graph.File, of, wrt []string, feeds tensor.Map,
	o gradtest.Options) ([]gradtest.Result, error) {
	outputs, err := grad.SelectOutputs(f, of, wrt)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(f.Inputs(), func(n graph.Node) bool { return n.DType() == graph.Half }) {
		o.Write = f.Model
		return gradtest.Check(ctx, outputs, wrt, feeds, o)
	}
	g, roots, in := graph.New(), []graph.Node(nil), map[graph.Node]graph.Node{}
	for _, n := range f.Inputs() {
		t := n.DType()
		if t == graph.Half {
			t = graph.Float
		}
		in[n] = g.Input(n.Name(), t, n.Shape())
	}
	for _, o := range outputs {
		roots = append(roots, o.Node)
	}
	if roots, err = graph.Inline(g, roots, in); err != nil {
		return nil, err
	}
	for i := range outputs {
		outputs[i].Node = roots[i]
	}
	return gradtest.Check(ctx, outputs, wrt, feeds, o)
}
