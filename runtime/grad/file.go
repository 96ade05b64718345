package grad

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ops"
)

// Names in a gradient model: the input Cotangent+OUTPUT is the weight of an output, and the output Gradient+INPUT is
// the gradient with respect to an input.
const (
	Cotangent = "cotangent/"
	Gradient  = "grad/"
)

// Pullback returns the vector-Jacobian product of outputs with respect to the graph inputs in wrt: for each input a
// node Gradient+INPUT with the shape of the input. It declares an input Cotangent+OUTPUT with the shape and type of
// each output, and differentiates the sum over outputs of <cotangent, output>.
func Pullback(outputs []graph.Output, wrt ...string) ([]graph.Output, error) {
	if len(outputs) == 0 || len(wrt) == 0 {
		return nil, fmt.Errorf("gradient: at least one output and one input must be named")
	}

	var ys, cotangents, xs []node
	for _, o := range outputs {
		if !graph.Differentiable(o.Node.DType()) {
			return nil, fmt.Errorf("gradient: output %q holds %v; only floating-point outputs have gradients", o.Name,
				o.Node.DType())
		}
		g := o.Node.Graph()
		if _, taken := g.InputNamed(Cotangent + o.Name); taken {
			return nil, fmt.Errorf("gradient: the model has an input %q already; rename it", Cotangent+o.Name)
		}
		ys = append(ys, o.Node)
		cotangents = append(cotangents, g.Input(Cotangent+o.Name, o.Node.DType(), o.Node.Shape()))
	}

	for i, name := range wrt {
		x, ok := ys[0].Graph().InputNamed(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("gradient: the outputs do not depend on an input %q", name)
		case !graph.Differentiable(x.DType()):
			return nil, fmt.Errorf("gradient: input %q holds %v; only floating-point inputs have gradients", name,
				x.DType())
		case slices.Contains(wrt[:i], name):
			return nil, fmt.Errorf("gradient: input %q is named twice", name)
		}
		xs = append(xs, x)
	}

	dx, err := VJP(ys, cotangents, xs...)
	if err != nil {
		return nil, err
	}

	out := make([]graph.Output, len(wrt))
	for i, name := range wrt {
		out[i] = graph.Output{Name: Gradient + name, Node: dx[i]}
	}

	return out, nil
}

// VJPModel returns a model of the vector-Jacobian product of an ONNX model. Its inputs are all inputs of the file,
// and Cotangent+OUTPUT for each output in targets. Its outputs are those in targets and Gradient+INPUT for each
// input in wrt, in that order. Metadata and references to weights in other files are those of the file, so the
// result must be saved in the same folder.
func VJPModel(file *graph.File, targets, wrt []string) (*onnx.ModelProto, error) {
	outputs, err := SelectOutputs(file, targets, wrt)
	if err != nil {
		return nil, err
	}

	all, err := WithPullback(outputs, wrt...)
	if err != nil {
		return nil, err
	}

	return file.Model(all...)
}

// WithPullback returns outputs and their Pullback in standard operators, as a file needs them. A gradient with the name
// of one of the outputs, which is a gradient itself, has the name Gradient twice before that of the input.
func WithPullback(outputs []graph.Output, wrt ...string) ([]graph.Output, error) {
	dx, err := Pullback(outputs, wrt...)
	if err != nil {
		return nil, err
	}

	for i := range dx {
		for slices.ContainsFunc(outputs, func(o graph.Output) bool { return o.Name == dx[i].Name }) {
			dx[i].Name = Gradient + dx[i].Name
		}
	}

	return ops.StandardOutputs(slices.Concat(outputs, dx)), nil
}

// SelectOutputs returns outputs of a file by name and checks that wrt are inputs; its errors list the existing ones.
func SelectOutputs(file *graph.File, targets, wrt []string) ([]graph.Output, error) {
	var outputs []graph.Output
	for _, name := range targets {
		n, ok := file.Output(name)
		if !ok {
			return nil, fmt.Errorf("gradient: no output %q; the model has %s", name, list(file.Outputs))
		}
		outputs = append(outputs, graph.Output{Name: name, Node: n})
	}

	for _, name := range wrt {
		x, ok := file.Graph.InputNamed(name)
		if !ok || !graph.Differentiable(x.DType()) {
			all := convert.Slice(file.Inputs(), func(n node) graph.Output {
				return graph.Output{Name: n.Name(), Node: n}
			})
			what := "no input %q; the model has %s"
			if ok {
				what = "input %q holds integers, which have no gradient; the model has %s"
			}
			return nil, fmt.Errorf("gradient: "+what, name, list(all))
		}
	}

	return outputs, nil
}

func list(values []graph.Output) string {
	return strings.Join(convert.Slice(values, func(v graph.Output) string {
		return fmt.Sprintf("%s %s%v", v.Name, strings.ToLower(v.Node.DType().String()), v.Node.Shape())
	}), ", ")
}
