package fromfile

import (
	"errors"
	"fmt"

	_ "embed"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
)

// ONNX is the method of a file.
type ONNX struct {
	method.FedAvg
	File   layer.File `config:"file" help:"the method: an ONNX file, or example, which is PromptFL"`
	Tokens int        `config:"tokens" in:"0..tokens" unset:"0" help:"length of shared prompts; 0: as the file says"`

	Private []int `config:"private_tokens" in:"0..tokens" unset:"[0]" help:"length of private ones, or a list; 0: file"`

	name string // of the file, for errors
	file *file
}

var onnxDef = layer.Def{Name: "onnx", Title: "method of an ONNX file",
	Paper:   "a loss of your own (docs/onnx-method.md); the example is PromptFL",
	Default: ONNX{File: Example, Private: []int{0}}}

// Example is the name of the file in the program.
const Example = "example"

//go:embed example.onnx
var example []byte

// Build reads and checks the file.
func (m *ONNX) Build() (method.Method, error) {
	name, content, err := Example, example, error(nil)
	if m.File != Example {
		if name, content, err = m.File.Content(); err != nil {
			return nil, check.OptionErrorf("file", ": %w", err)
		}
	}

	m.name = name
	if m.file, err = open(content); err != nil {
		return nil, check.OptionErrorf("file", " is %s: %w", name, err)
	}

	return *m, nil
}

// check builds all graphs for two clients of different sizes, with gradients: a size that the file has as a constant,
// or an operator without a derivative, is an error now. Sizes have many divisors, as those of real towers.
func (m ONNX) check() error {
	for _, size := range []struct {
		spec   method.ClientSpec
		tokens int
	}{{method.ClientSpec{Clients: 3, Classes: 3, Width: 64, Dim: 96, Patches: 4, Scale: 4}, 4},
		{method.ClientSpec{Clients: 3, Classes: 5, Width: 128, Dim: 160, Patches: 6, Scale: 4}, 6}} {
		spec := size.spec
		spec.ImageSize, spec.VisionWidth, spec.VisionLayers, spec.VisionUnits = 32, 64, 2, 64
		spec.TextLayers, spec.TextUnits, spec.Tokens = 2, 64, 5
		sized := m
		sized.Tokens, sized.Private = size.tokens, []int{size.tokens}
		if err := sized.checkFor(spec); err != nil {
			return fmt.Errorf("with T %d, w %d, D %d, C %d: %w", size.tokens, spec.Width, spec.Dim, spec.Classes, err)
		}
	}

	return nil
}

func (m ONNX) checkFor(client method.ClientSpec) error {
	lossScope, _, loss := method.LossOf(m, client)
	if err := lossScope.Graph().Err(); err != nil {
		return err
	}

	if _, err := lossScope.Built().Terms(loss); err != nil {
		return err
	}

	// towers are not built yet
	placed := graph.Transform([]graph.Node{loss}, func(op *graph.Op, _ []graph.Node) []graph.Node {
		if op.Placeholder() == nil {
			return nil
		}
		return []graph.Node{lossScope.Graph().Input(fmt.Sprint("tower/", op.ID), op.Out[0].DType(), op.Out[0].Shape())}
	})[0]

	var wrt []graph.Node
	for _, n := range graph.Inputs(placed) {
		if graph.Differentiable(n.DType()) {
			wrt = append(wrt, n)
		}
	}

	if len(wrt) == 0 {
		return errors.New("the loss reads nothing that can be trained")
	}

	if _, err := grad.Of(placed, wrt...); err != nil {
		return err
	}

	for _, c := range []struct {
		role    *role
		outputs []port
	}{{ofFinish, m.outputs(nextState, uploaded)}, {ofServer, m.outputs(merged, nextDown)}} {
		scope := method.ScopeOf(m, client)
		for _, out := range c.outputs {
			m.vector(scope, c.role, client, []port{out})
		}
		if err := scope.Graph().Err(); err != nil {
			return err
		}
	}

	return nil
}
