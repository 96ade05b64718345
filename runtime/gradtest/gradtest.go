// Package gradtest compares gradient graphs with finite differences of the graphs they are of, both run by ONNX
// Runtime.
package gradtest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Options of a check. The zero value suits float32 graphs of smooth functions.
type Options struct {
	// Directions is how many random directions each input is moved in; 0 is 3.
	Directions int
	// Elements is how many single elements of each input are moved, beside the directions; 0 is 3, -1 none.
	Elements int
	// Step is how far an element moves, relative to the root mean square of its input (or to 1 where that is 0); 0 is
	// 0.02. A function whose slope jumps must not do so closer than two steps to the point of the check.
	Step float64
	// NonSmooth is for functions whose slope jumps often, such as deep networks of rectifiers, where a step always
	// crosses some jumps: the result is the median over the directions and elements in place of the largest error. A
	// wrong rule shows in all.
	NonSmooth bool
	// Seed makes the directions and the weights of the outputs.
	Seed uint64
	// Session is how the graphs are run.
	Session ort.Options
}

// Result is the outcome for one input.
type Result struct {
	Input string
	// RelErr is the largest difference between a derivative of the gradient graph and its finite difference, relative
	// to the largest of: either of the two, and what a direction of that length gives on average (|gradient|
	// |direction| / sqrt(elements)). The rounding of the outputs to float32 is taken off the difference first.
	RelErr float64
	// Rounding is what was taken off, relative to the same: a smaller error would not have been seen. It is infinite
	// where nothing changes at all.
	Rounding float64
	// Norm is the Euclidean norm of the gradient.
	Norm float64
}

// Check compares the gradient of sum <c, output>, with random c, with respect to each graph input named in wrt at the
// point that feeds holds.
func Check(ctx context.Context, outputs []graph.Output, wrt []string, feeds tensor.Map, o Options) ([]Result, error) {
	return check(ctx, outputs, graph.Model, wrt, feeds, o)
}

// CheckFile is Check for the named outputs and inputs of an ONNX model. Options.Session.WeightsDir must name the folder
// of the weights that lie beside it.
func CheckFile(ctx context.Context, f *graph.File, of, wrt []string, feeds tensor.Map, o Options) ([]Result, error) {
	outputs, err := grad.Choose(f, of, wrt)
	if err != nil {
		return nil, err
	}
	return check(ctx, outputs, f.Model, wrt, feeds, o)
}

func check(ctx context.Context, outputs []graph.Output, write func(...graph.Output) (*onnx.ModelProto, error),
	wrt []string,
	feeds tensor.Map, o Options) ([]Result, error) {
	c := &checker{ctx: ctx, feeds: feeds, o: o, random: rand.New(rand.NewPCG(o.Seed, 1))}
	dx, err := grad.Pullback(outputs, wrt...)
	if err != nil {
		return nil, err
	}
	if c.forward, err = session(outputs, write, o.Session); err != nil {
		return nil, fmt.Errorf("the graph: %w", err)
	}
	defer c.forward.Close()
	backward, err := session(dx, write, o.Session)
	if err != nil {
		return nil, fmt.Errorf("its gradient: %w", err)
	}
	defer backward.Close()
	if c.weights, err = c.run(c.forward, feeds); err != nil {
		return nil, err
	}
	all := make(tensor.Map)
	for k, t := range feeds {
		all[k] = t
	}
	for _, name := range c.weights.Names() {
		for i, v := range c.weights[name].Data {
			c.noise = math.Hypot(c.noise, float64(v)*0x1p-24)
			c.weights[name].Data[i] = float32(c.random.NormFloat64())
		}
		all[grad.Cotangent+name] = c.weights[name]
	}
	gradients, err := c.run(backward, all)
	if err != nil {
		return nil, fmt.Errorf("its gradient: %w", err)
	}
	var out []Result
	for _, name := range wrt {
		r, err := c.input(name, gradients[grad.Gradient+name])
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func session(outputs []graph.Output, write func(...graph.Output) (*onnx.ModelProto, error),
	o ort.Options) (*ort.Session, error) {
	model, err := write(outputs...)
	if err != nil {
		return nil, err
	}
	return ort.NewSession(model, o)
}

type checker struct {
	ctx     context.Context
	forward *ort.Session
	feeds   tensor.Map
	weights tensor.Map // c of each output
	noise   float64    // of rounding in sum <c, output>
	o       Options
	random  *rand.Rand
}

// run feeds a session with those tensors that it takes.
func (c *checker) run(s *ort.Session, feeds tensor.Map) (tensor.Map, error) {
	in := tensor.Map{}
	for _, p := range s.Inputs() {
		if t, ok := feeds[p.Name]; ok {
			in[p.Name] = t
		}
	}
	return s.Run(c.ctx, in)
}

func (c *checker) input(name string, g *tensor.Tensor) (Result, error) {
	x, ok := c.feeds[name]
	switch {
	case !ok:
		return Result{}, fmt.Errorf("input %q has no value to check at", name)
	case !g.SameShape(x):
		return Result{}, fmt.Errorf("the gradient of input %q has shape %v, the input has %v", name, g.Shape, x.Shape)
	case g.Finite() >= 0:
		return Result{}, fmt.Errorf("the gradient of input %q is not finite at element %d", name, g.Finite())
	case x.Len() == 0:
		return Result{Input: name}, nil
	}
	r := Result{Input: name, Norm: g.Norm()}
	step := orDefault(c.o.Step, 0.02)
	if rms := x.Norm() / math.Sqrt(float64(x.Len())); rms > 0 {
		step *= rms
	}
	var errors, rounding []float64
	for i := range orDefault(c.o.Directions, 3) + max(0, orDefault(c.o.Elements, 3)) {
		v := make([]float64, x.Len())
		if i < orDefault(c.o.Directions, 3) {
			for j := range v {
				v[j] = c.random.NormFloat64() / 2
			}
		} else {
			v[c.random.IntN(len(v))] = 1
		}
		e, blur, err := c.error(name, x, g, v, step, r.Norm)
		if err != nil {
			return Result{}, err
		}
		errors, rounding = append(errors, e), append(rounding, blur)
	}
	slices.Sort(errors)
	slices.Sort(rounding)
	last := len(errors) - 1
	if c.o.NonSmooth {
		last = len(errors) / 2
	}
	r.RelErr, r.Rounding = errors[last], rounding[last]
	return r, nil
}

// enough is an error and rounding below which a derivative needs no second look.
const enough = 1e-3

// error is the relative error along v and the rounding that it leaves out, of the step that leaves the least of both.
// Shorter steps serve where the function bends or its slope jumps, longer ones where rounding hides a small slope.
func (c *checker) error(name string, x, g *tensor.Tensor, v []float64, step, norm float64) (best, rounding float64,
	err error) {
	best, rounding = math.Inf(1), math.Inf(1)
	for _, by := range []float64{1, 1. / 4, 1. / 16, 1. / 64, 4, 16, 64} {
		h := step * by
		if best+rounding <= enough || by > 1 && h > 0.1 {
			break
		}
		diff, want, size, err := c.compare(name, x, g, v, h)
		if err != nil {
			return 0, 0, err
		}
		scale := math.Max(want, norm*size/math.Sqrt(float64(len(v))))
		if diff == 0 && scale == 0 {
			return 0, math.Inf(1), nil
		}
		if e, blur := diff/scale, 4*c.noise/h/scale; math.IsInf(best, 1) || e+blur < best+rounding {
			best, rounding = e, blur
		}
	}
	return best, rounding, nil
}

// compare gives the difference, beyond rounding, between <g, v> and the derivative along v, the larger of the two
// derivatives, and the length of v. The derivative is extrapolated from central differences with steps h and h/2
// [Richardson 1911], so its error falls with the fourth power of the step.
func (c *checker) compare(name string, x, g *tensor.Tensor, v []float64, h float64) (diff, want, size float64,
	err error) {
	full, along, err := c.slope(name, x, g, v, h)
	if err != nil {
		return 0, 0, 0, err
	}
	half, alongHalf, err := c.slope(name, x, g, v, h/2)
	if err != nil {
		return 0, 0, 0, err
	}
	fd, exact := (4*half-full)/3, (4*alongHalf-along)/3
	for _, e := range v {
		size = math.Hypot(size, e)
	}
	return math.Max(0, math.Abs(fd-exact)-4*c.noise/h), math.Max(math.Abs(fd), math.Abs(exact)), size, nil
}

// slope is (f(x+hv) - f(x-hv)) / 2h, and <g, v> for the v that float32 made of it. Differences are taken output by
// output, and summed in float64.
func (c *checker) slope(name string, x, g *tensor.Tensor, v []float64, h float64) (fd, along float64, err error) {
	move := func(h float64) (*tensor.Tensor, tensor.Map, error) {
		at, feeds := x.Clone(), tensor.Map{}
		for k, t := range c.feeds {
			feeds[k] = t
		}
		for i := range at.Data {
			at.Data[i] = float32(float64(x.Data[i]) + h*v[i])
		}
		feeds[name] = at
		out, err := c.run(c.forward, feeds)
		return at, out, err
	}
	up, high, err := move(h)
	if err != nil {
		return 0, 0, err
	}
	down, low, err := move(-h)
	if err != nil {
		return 0, 0, err
	}
	for i := range x.Data {
		along += float64(g.Data[i]) * (float64(up.Data[i]) - float64(down.Data[i])) / (2 * h)
	}
	for _, name := range high.Names() {
		w := c.weights[name].Data
		for i := range w {
			fd += float64(w[i]) * (float64(high[name].Data[i]) - float64(low[name].Data[i])) / (2 * h)
		}
	}
	return fd, along, nil
}

// NonSmooth tells whether the slope of the functions that outputs are jumps somewhere.
func NonSmooth(outputs ...graph.Output) bool {
	for _, o := range outputs {
		for _, op := range graph.Reachable(o.Node) {
			if d := op.Def(); d != nil && d.NonSmooth && graph.Differentiable(op.Out[0].DType()) {
				return true
			}
		}
	}
	return false
}

func orDefault[T int | float64](v, missing T) T {
	if v == 0 {
		return missing
	}
	return v
}
