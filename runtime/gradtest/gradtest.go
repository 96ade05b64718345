// Package gradtest compares gradient graphs with finite differences of their functions, both computed by ONNX Runtime.
// It may import the packages grad, graph, onnx, ort and tensor of the runtime.
package gradtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	// Directions is the number of random directions in which each input is moved; 0 means 3.
	Directions int
	// Elements is the number of single elements of each input that are also moved; 0 means 3, -1 none.
	Elements int
	// Step is the change of an element, relative to the root mean square of its input (or to 1 if that is 0); 0 means
	// 0.02. The derivative must have no jump within two steps of the point of the check.
	Step float64
	// NonSmooth is for functions whose derivative jumps often, such as deep networks of rectifiers, where each step
	// crosses some jumps: the result is the median over directions and elements, not the largest error. A wrong
	// gradient rule changes all of them.
	NonSmooth bool
	// Seed determines the directions and the weights of the outputs.
	Seed uint64
	// Session holds the options of the sessions that run the graphs.
	Session ort.Options
	// Write writes the graphs, as graph.File.Model for those of a file; nil means graph.Model.
	Write func(...graph.Output) (*onnx.ModelProto, error)
}

// Result is the result for one input.
type Result struct {
	Input string
	// RelErr is the largest difference between a derivative of the gradient graph and its finite difference, minus the
	// rounding of the outputs to float32. It is relative to the largest of: both derivatives, and the average
	// derivative in a direction of that length (|gradient| |direction| / sqrt(elements)).
	RelErr float64
	// Rounding is the rounding that was subtracted, relative to the same: smaller errors are not visible. It is
	// infinite if nothing changes at all.
	Rounding float64
	// Norm is the Euclidean norm of the gradient.
	Norm float64
}

// Check compares the gradient of sum <c, output>, with random c, with respect to each graph input in wrt, at the point
// in feeds.
func Check(ctx context.Context, outputs []graph.Output, wrt []string, feeds tensor.Map, options Options) ([]Result,
	error) {
	check := &checker{ctx: ctx, feeds: feeds, options: options, random: rand.New(rand.NewPCG(options.Seed, 1))}
	dx, err := grad.Pullback(outputs, wrt...)
	if err != nil {
		return nil, err
	}

	if check.forward, err = options.session(outputs); err != nil {
		return nil, fmt.Errorf("the graph: %w", err)
	}
	defer check.forward.Close()

	backward, err := options.session(dx)
	if err != nil {
		return nil, fmt.Errorf("its gradient: %w", err)
	}
	defer backward.Close()

	if check.weights, err = check.run(check.forward, feeds); err != nil {
		return nil, err
	}

	all := tensor.Map{}
	maps.Copy(all, feeds)
	for _, name := range check.weights.Names() {
		for i, v := range check.weights[name].Data {
			check.noise = math.Hypot(check.noise, float64(v)*0x1p-24)
			check.weights[name].Data[i] = float32(check.random.NormFloat64())
		}
		all[grad.Cotangent+name] = check.weights[name]
	}

	gradients, err := check.run(backward, all)
	if err != nil {
		return nil, fmt.Errorf("its gradient: %w", err)
	}

	var out []Result
	for _, name := range wrt {
		r, err := check.input(name, gradients[grad.Gradient+name])
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}

	return out, nil
}

func (o Options) session(outputs []graph.Output) (*ort.Session, error) {
	write := o.Write
	if write == nil {
		write = graph.Model
	}

	model, err := write(outputs...)
	if err != nil {
		return nil, err
	}

	return ort.NewSession(model, o.Session)
}

type checker struct {
	ctx     context.Context
	forward *ort.Session
	feeds   tensor.Map
	weights tensor.Map // c of each output
	noise   float64    // rounding of sum <c, output>
	options Options
	random  *rand.Rand
	err     error // the first one of a run
}

func (c *checker) run(s *ort.Session, feeds tensor.Map) (tensor.Map, error) {
	in := tensor.Map{}
	for _, p := range s.Inputs() {
		if t, ok := feeds[p.Name]; ok {
			in[p.Name] = t
		}
	}
	return s.Run(c.ctx, in)
}

func (c *checker) input(name string, gradient *tensor.Tensor) (Result, error) {
	point, ok := c.feeds[name]
	switch {
	case !ok:
		return Result{}, fmt.Errorf("input %q has no value to check at", name)
	case !gradient.SameShape(point):
		return Result{}, fmt.Errorf("the gradient of input %q has shape %v, the input has %v", name, gradient.Shape,
			point.Shape)
	case gradient.NonFinite() >= 0:
		return Result{}, fmt.Errorf("the gradient of input %q is not finite at element %d", name, gradient.NonFinite())
	case point.Len() == 0:
		return Result{Input: name}, nil
	}

	result := Result{Input: name, Norm: gradient.Norm()}
	step := cmp.Or(c.options.Step, 0.02)
	if rms := point.Norm() / math.Sqrt(float64(point.Len())); rms > 0 {
		step *= rms
	}

	var errors, rounding []float64
	for i := range cmp.Or(c.options.Directions, 3) + max(0, cmp.Or(c.options.Elements, 3)) {
		v := make([]float64, point.Len())
		if i < cmp.Or(c.options.Directions, 3) {
			for j := range v {
				v[j] = c.random.NormFloat64() / 2
			}
		} else {
			v[c.random.IntN(len(v))] = 1
		}
		e, blur := c.error(name, point, gradient, v, step, result.Norm)
		errors, rounding = append(errors, e), append(rounding, blur)
	}

	if c.err != nil {
		return Result{}, c.err
	}

	slices.Sort(errors)
	slices.Sort(rounding)
	last := len(errors) - 1
	if c.options.NonSmooth {
		last = len(errors) / 2
	}

	result.RelErr, result.Rounding = errors[last], rounding[last]
	return result, nil
}

// enough is the sum of error and rounding below which no other step is tried.
const enough = 1e-3

// error returns the relative error along v and the rounding subtracted from it, for the step with the smallest sum of
// both. Shorter steps help where the function is curved or its derivative jumps, longer ones where rounding hides a
// small derivative. The derivative is extrapolated from central differences with steps h and h/2 [Richardson 1911], so
// its error falls with the fourth power of the step.
func (c *checker) error(name string, x, g *tensor.Tensor, v []float64, step, norm float64) (best, rounding float64) {
	size := 0.0
	for _, e := range v {
		size = math.Hypot(size, e)
	}

	best, rounding = math.Inf(1), math.Inf(1)
	for _, by := range []float64{1, 1. / 4, 1. / 16, 1. / 64, 4, 16, 64} {
		h := step * by
		if best+rounding <= enough || by > 1 && h > 0.1 {
			break
		}

		full, along := c.slope(name, x, g, v, h)
		half, alongHalf := c.slope(name, x, g, v, h/2)
		fd, exact := (4*half-full)/3, (4*alongHalf-along)/3
		diff := max(0, math.Abs(fd-exact)-4*c.noise/h)
		scale := max(math.Abs(fd), math.Abs(exact), norm*size/math.Sqrt(float64(len(v))))
		if diff == 0 && scale == 0 {
			return 0, math.Inf(1)
		}

		if e, blur := diff/scale, 4*c.noise/h/scale; math.IsInf(best, 1) || e+blur < best+rounding {
			best, rounding = e, blur
		}
	}

	return best, rounding
}

// slope returns (f(x+hv) - f(x-hv)) / 2h, and <gradient, v> for v after rounding to float32. It subtracts output by
// output and sums in float64.
func (c *checker) slope(name string, x, gradient *tensor.Tensor, v []float64, h float64) (fd, along float64) {
	move := func(h float64) (at *tensor.Tensor, out tensor.Map) {
		if c.err != nil {
			return x, nil
		}
		feeds := maps.Clone(c.feeds)
		at = x.Clone()
		for i := range at.Data {
			at.Data[i] = float32(float64(x.Data[i]) + h*v[i])
		}
		feeds[name] = at
		out, c.err = c.run(c.forward, feeds)
		return at, out
	}

	up, high := move(h)
	down, low := move(-h)
	if c.err != nil {
		return 0, 0
	}

	for i := range x.Data {
		along += float64(gradient.Data[i]) * (float64(up.Data[i]) - float64(down.Data[i])) / (2 * h)
	}

	for _, name := range high.Names() {
		w := c.weights[name].Data
		for i := range w {
			fd += float64(w[i]) * (float64(high[name].Data[i]) - float64(low[name].Data[i])) / (2 * h)
		}
	}

	return fd, along
}

// NonSmooth reports whether the derivative of the outputs has jumps.
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
