package inspect

import (
	"cmp"
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
	"promptfed/runtime/convert"
	"promptfed/runtime/grad"
	"promptfed/runtime/gradtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
	"promptfed/tools/promptfed/cli"
)

// allowed is the largest relative difference between a float32 gradient and finite differences.
const allowed = 1e-2

// Help texts of --of and --wrt.
const (
	ofHelp  = "outputs of the graph; for check by default all floating-point ones"
	wrtHelp = "inputs of the graph; for check by default all floating-point ones"
)

func checkCommand() *cobra.Command {
	var outputs, wrt []string
	command := &cobra.Command{
		Use: "check BUNDLE | check GRAPH.onnx [--of OUTPUT] [--wrt INPUT] | check METHOD.onnx", Args: cli.Exactly(1),
		Short: "check a bundle, a graph or a method's file: files, forward pass, gradients against finite differences",
	}

	command.Flags().StringSliceVar(&outputs, "of", nil, ofHelp)
	command.Flags().StringSliceVar(&wrt, "wrt", nil, wrtHelp)
	result := cli.AddJSON(command, checks{})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		done := checks{Path: args[0]}
		err := done.all(cmd.Context(), args[0], outputs, wrt)
		if len(done.Checks) == 0 {
			return err
		}
		rows := [][]string{{"what", "result", "error"}}
		for _, d := range done.Checks {
			rows = append(rows, []string{d.What, map[bool]string{true: "ok", false: "WRONG"}[d.OK], d.shown})
		}
		return cmp.Or(err, result.Print(done, align(rows)))
	}

	return command
}

// checks holds the results of the checks of a bundle or a graph.
type checks struct {
	Path   string      `json:"path"`
	Checks []checkDone `json:"checks"`
}

// checkDone is the result of a check. Error is the relative error of a gradient, or the largest difference of features;
// nil if the check has none, or a gradient no effect.
type checkDone struct {
	What  string   `json:"what"`
	OK    bool     `json:"ok"`
	Error *float64 `json:"error"`
	shown string
}

func (c *checks) add(d checkDone) { c.Checks = append(c.Checks, d) }

// all checks a method's file, a graph or a bundle until a check fails.
func (c *checks) all(ctx context.Context, path string, outputs, wrt []string) error {
	if strings.HasSuffix(path, ".onnx") {
		if is, err := c.method(ctx, path); is || err != nil {
			return err
		}
		return c.graph(ctx, path, outputs, wrt)
	}

	model, err := bundle.Find(path)
	if err == nil {
		err = model.Verify()
	}

	if err != nil {
		return err
	}

	c.add(checkDone{What: "files against their SHA-256", OK: true})
	for _, check := range []func(context.Context, *bundle.Bundle, ort.Options) error{c.witness, c.imageTower, c.lengths,
		c.textTower} {
		if err := check(ctx, model, ort.Options{WeightsDir: model.WeightsDir()}); err != nil {
			return err
		}
	}

	return nil
}

// gradients adds the comparisons of gradients with finite differences.
func (c *checks) gradients(results []gradtest.Result, what string) (err error) {
	for _, result := range results {
		done, limit := checkDone{What: "gradient of " + what + " by " + result.Input, OK: true,
			Error: &result.RelErr}, allowed
		if result.Rounding < 10*allowed { // the precision of finite differences
			limit = max(allowed, result.Rounding)
		}

		if !(result.RelErr <= limit) {
			done.OK = false
			err = fmt.Errorf("the gradient of %s with respect to %s is off by %.2g, more than %.2g", what, result.Input,
				result.RelErr, limit)
		}

		done.shown = fmt.Sprintf("%.1e", result.RelErr)
		switch {
		case math.IsInf(result.Rounding, 1):
			done.shown, done.Error = "no effect", nil
		case result.RelErr < result.Rounding:
			done.shown = fmt.Sprintf("below %.1e", result.Rounding)
		}

		c.add(done)
	}

	return err
}

// textTower compares the gradients of the text tower with respect to prompts with finite differences.
func (c *checks) textTower(ctx context.Context, model *bundle.Bundle, options ort.Options) error {
	g := graph.New()
	classes := []string{"dog", "house", "red car"}
	short := g.Input("a", graph.Float, graph.Static(4, model.Text.Width))
	long := g.Input("b", graph.Float, graph.Static(7, model.Text.Width))
	out, err := model.Prompts(g, classes, []clip.Prompt{{Ctx: short}, {Ctx: long}})
	if err != nil {
		return err
	}

	plain, err := model.Prompts(g, classes, []clip.Prompt{{Ctx: long.Slice(0, 0, 7), Class: clip.Front}})
	if err != nil {
		return err
	}

	outputs := []graph.Output{{Name: "text", Node: out[0].L2Normalize()}, {Name: "longer text",
		Node: out[1].L2Normalize()}, {Name: "name in front", Node: plain[0].L2Normalize()}}
	feeds := tensor.Map{"a": randomTensor(4, model.Text.Width), "b": randomTensor(7, model.Text.Width)}
	results, err := gradtest.Check(ctx, outputs, []string{"a", "b"}, feeds, gradtest.Options{Session: options})
	if err != nil {
		return fmt.Errorf("text tower: %w", err)
	}

	return c.gradients(results, "the text tower")
}

func randomTensor(shape ...int) *tensor.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	t := tensor.New(shape...)
	for i := range t.Data {
		t.Data[i] = float32(r.NormFloat64())
	}
	return t
}

// graph compares the gradients of an ONNX file with finite differences at a random point.
func (c *checks) graph(ctx context.Context, path string, targets, wrt []string) error {
	file, err := graph.ReadFile(path)
	if err != nil {
		return err
	}

	if len(targets) == 0 {
		for _, o := range file.Outputs {
			if graph.Differentiable(o.Node.DType()) {
				targets = append(targets, o.Name)
			}
		}
	}

	open := map[string]int{"": 2}
	fitImages(file, open)
	feeds, floats, err := inputsOf(file, open)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	if len(wrt) == 0 {
		wrt = floats
	}

	if len(wrt) == 0 || len(targets) == 0 {
		in := convert.Slice(file.Inputs(), func(n graph.Node) string {
			return fmt.Sprintf("%s %v%v", n.Name(), n.DType(), n.Shape())
		})
		return fmt.Errorf("%s has no gradient: no floating-point output depends on a floating-point input; its "+
			"inputs are %s", path, strings.Join(in, ", "))
	}

	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}

	options := gradtest.Options{Session: ort.Options{WeightsDir: dir}}
	if outputs, err := grad.SelectOutputs(file, targets, wrt); err == nil && gradtest.NonSmooth(outputs...) {
		options.NonSmooth, options.Directions, options.Elements, options.Step = true, 9, -1, 5e-4
	}

	results, err := checkFile(ctx, file, targets, wrt, feeds, options)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	return c.gradients(results, strings.Join(targets, "+"))
}

func nodeOf(output graph.Output) graph.Node { return output.Node }

// checkFile checks named outputs and inputs of a file. It computes inputs of half precision in float32, because finite
// differences need smaller steps than half precision can represent.
func checkFile(ctx context.Context, file *graph.File, targets, wrt []string, feeds tensor.Map,
	options gradtest.Options) ([]gradtest.Result, error) {
	outputs, err := grad.SelectOutputs(file, targets, wrt)
	if err != nil {
		return nil, err
	}

	if !slices.ContainsFunc(file.Inputs(), func(n graph.Node) bool { return n.DType() == graph.Half }) {
		options.Write = file.Model
		return gradtest.Check(ctx, outputs, wrt, feeds, options)
	}

	g, in := graph.New(), map[graph.Node]graph.Node{}
	for _, n := range file.Inputs() {
		t := n.DType()
		if t == graph.Half {
			t = graph.Float
		}
		in[n] = g.Input(n.Name(), t, n.Shape())
	}

	roots, err := graph.Inline(g, convert.Slice(outputs, nodeOf), in)
	if err != nil {
		return nil, err
	}

	for i := range outputs {
		outputs[i].Node = roots[i]
	}

	return gradtest.Check(ctx, outputs, wrt, feeds, options)
}
