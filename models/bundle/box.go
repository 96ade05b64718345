package bundle

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ops"
	"promptfed/runtime/tensor"
)

// Names of gradient files, beside the file of their tower.
const (
	TextGradientFile  = "text-gradient.onnx"
	ImageGradientFile = "image-gradient.onnx"
)

// VersionOf returns the version of a bundle.json that lists some files.
func VersionOf(files map[string]File) int {
	for name := range files {
		if base := path.Base(name); base == TextGradientFile || base == ImageGradientFile {
			return GradientVersion
		}
	}
	return Version
}

// Box is a tower that trains by a gradient file, which any program may have written: a graph with the tower's features
// and their gradient with respect to one input. So no operator of the tower needs a gradient rule, and its inside
// cannot be reached. Inputs are those of the tower and grad.Cotangent+FEATURES; outputs are FEATURES and
// grad.Gradient+INPUT.
type Box struct {
	File *graph.File

	name, input        string
	cotangent          graph.Node
	features, gradient graph.Node
	key                string
}

// OpenBox opens the gradient file at name, with slashes, relative to dir; nil if there is none. input is the name of
// the tower's input that has a gradient, others the names of its other inputs.
func OpenBox(dir, name, features, input string, others ...string) (*Box, error) {
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	f, err := graph.OpenFile(dir, name)
	if err != nil {
		return nil, err
	}

	b := &Box{File: f, name: name, input: input}
	if err := b.find(features, others); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	content, err := onnx.Marshal(f.Proto)
	b.key = fmt.Sprintf("%x", sha256.Sum256(content))
	return b, err
}

// find finds the inputs and outputs by their names.
func (b *Box) find(features string, others []string) (err error) {
	cotangent := grad.Cotangent + features
	for _, n := range b.File.Inputs() {
		switch name := n.Name(); {
		case name == cotangent:
			b.cotangent = n
		case name != b.input && !slices.Contains(others, name):
			return fmt.Errorf("its input %q is none of %q: %s and inputs of the tower", name,
				append([]string{cotangent, b.input}, others...), cotangent)
		}
	}

	for _, o := range []struct {
		name string
		node *graph.Node
	}{{features, &b.features}, {grad.Gradient + b.input, &b.gradient}} {
		n, ok := b.File.Output(o.name)
		if !ok || !graph.Differentiable(n.DType()) {
			return fmt.Errorf("it has no floating-point output %q: its outputs must be %q and %q", o.name, features,
				grad.Gradient+b.input)
		}
		*o.node = n
	}

	if !b.cotangent.OK() || slices.Contains(graph.Inputs(b.features), b.cotangent) {
		return fmt.Errorf("it must have an input %q, on which %q depends and %q does not", cotangent,
			grad.Gradient+b.input, features)
	}

	return nil
}

// Name returns the name of the file.
func (b *Box) Name() string { return b.name }

// Features adds the features [N,D] to the graph of values, which are the inputs of the tower by name.
func (b *Box) Features(values map[string]graph.Node) graph.Node {
	input := values[b.input]
	names, in := []string{b.input}, []graph.Node{input}
	for _, n := range b.File.Inputs() {
		if v, ok := values[n.Name()]; ok && n.Name() != b.input {
			names, in = append(names, n.Name()), append(in, v)
		}
	}

	y := b.inline(b.features, names, in)
	if s, said := y.Shape(), b.features.Shape(); len(s) != 2 || s[0] != input.Shape()[0] || !s[1].Static() {
		if s != nil && len(s) != 2 || len(said) != 2 || !said[1].Static() {
			return input.Graph().Fail("%s: its output %q has shape %v; it must be [batch,size], with a stated size",
				b.name, b.features.Name(), said)
		}
		y = y.Reshape(-1, said[1].N)
	}

	return graph.WithGradient(y, b.key, func(c *graph.Backward) []graph.Node {
		in := c.In[1:]
		dx := b.inline(b.gradient, append(names, b.cotangent.Name()), append(slices.Clone(in), c.G()))
		if !ops.Compatible(dx.Shape(), in[0].Shape()) {
			return c.Fail("%s: its output %s%s has shape %v, must be %v", b.name, grad.Gradient, b.input, dx.Shape(),
				in[0].Shape())
		}
		return []graph.Node{dx.ReshapeLike(in[0])}
	}, in...)
}

// inline adds an output of the file, for inputs by name.
func (b *Box) inline(output graph.Node, names []string, values []graph.Node) graph.Node {
	g, at := values[0].Graph(), map[graph.Node]graph.Node{}
	for i, name := range names {
		n, ok := b.File.Graph.InputNamed(name)
		if at[n] = values[i]; ok && !graph.IsHalf(n.DType()) {
			at[n] = values[i].Cast(n.DType())
		}
	}

	out, err := graph.InlineWith(g, []graph.Node{output}, at, untransposed)
	if err != nil {
		return g.Fail("%s: %w", b.name, err)
	}

	return out[0].Cast(graph.Float)
}

// untransposed replaces a product with transposed weights, of which ONNX Runtime would hold a transposed copy.
func untransposed(op *graph.Op, in []graph.Node, apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
	if op.Domain == graph.Standard && op.Kind == "MatMul" && in[1].Rank() == 2 {
		if t := in[1].Op(); t.Kind == "Transpose" && t.Domain == graph.Standard && t.In[0].Op().Literal() != nil {
			if p, given := t.Attrs.Ints("perm"); !given || slices.Equal(p, []int{1, 0}) {
				return []graph.Node{in[0].MatMulT(t.In[0])}, nil
			}
		}
	}

	return apply(in)
}

// Prove compares the features of the box with those of the tower's file, and checks that the gradient by an input
// consists of numbers.
func (b *Box) Prove(dir string, run Runner, f TwoForms, input string) error {
	x, _ := f.Got.Graph().InputNamed(input)
	dx, err := grad.Of(f.Got.Sum(), x)
	if err == nil {
		var out tensor.Map
		out, err = f.Compare(dir, run, graph.Output{Name: "gradient", Node: dx[0]})
		if err == nil && out["gradient"].NonFinite() >= 0 {
			err = errors.New("its gradient has elements that are not numbers")
		}
	}

	if failed, ok := errors.AsType[RunError](err); ok {
		return fmt.Errorf("%s: %w", b.name, failed)
	}

	if err != nil {
		return fmt.Errorf("%s does not belong to its tower (write it again, or remove it): %w", b.name, err)
	}

	return nil
}

// WriteGradient is WriteGraph for a gradient file: features, and their gradient with respect to an input.
func WriteGradient(file, at string, features graph.Output, input string) error {
	all, err := grad.WithPullback([]graph.Output{features}, input)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return WriteGraph(file, at, all)
}

// WriteGraph writes outputs as an ONNX file that refers to weights in files of the folder at, in which it must lie;
// their names are relative to the folder above.
func WriteGraph(file, at string, outputs []graph.Output) error {
	model, err := graph.Model(outputs...)
	if err != nil {
		return err
	}

	for _, t := range model.Graph.Initializer {
		if !onnx.IsExternal(t) {
			continue
		}
		e, err := onnx.ExternalOf(t)
		if err != nil {
			return err
		}
		e.File = strings.TrimPrefix(e.File, at+"/")
		onnx.SetExternal(t, e)
	}

	data, err := onnx.Marshal(model)
	if err != nil {
		return err
	}

	return atomicfile.Write(file, atomicfile.Bytes(data))
}

// Noise returns a tensor of pseudorandom numbers between -1 and 1.
func Noise(shape ...int) *tensor.Tensor {
	t := tensor.New(shape...)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range t.Data {
		t.Data[i] = 2*rng.Float32() - 1
	}
	return t
}

// Runner runs a model whose weights are files in dir.
type Runner func(m *onnx.ModelProto, dir string, in tensor.Map) (tensor.Map, error)

// RunError is the error of a Runner, which says nothing about the model.
type RunError struct{ error }

func (e RunError) Unwrap() error { return e.error }

// TwoForms holds two features of the same inputs, which should be equal.
type TwoForms struct {
	Got, Want graph.Node
	In        tensor.Map
}

// Compare runs both forms and returns an error if they differ. It also returns other outputs.
func (f TwoForms) Compare(dir string, run Runner, others ...graph.Output) (tensor.Map, error) {
	forms := []graph.Output{{Name: "got", Node: f.Got}, {Name: "want", Node: f.Want}}
	m, err := graph.Model(append(forms, others...)...)
	if err != nil {
		return nil, err
	}

	out, err := run(m, dir, f.In)
	if err != nil {
		return nil, RunError{err}
	}

	return out, SameFeatures(out["got"], out["want"])
}

// SameFeatures returns an error if features differ by more than 1e-4 of the largest value.
func SameFeatures(got, want *tensor.Tensor) error {
	if got == nil || want == nil || !got.SameShape(want) || want.NonFinite() >= 0 {
		return fmt.Errorf("features %v in place of %v", got, want)
	}
	if worst := tensor.Distance(got, want); !(worst <= 1e-4*want.MaxAbs()) {
		return fmt.Errorf("features differ by %g", worst)
	}
	return nil
}
