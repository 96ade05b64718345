package inspect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// inputsOf returns values for every input of a graph, and the names of the floating-point inputs. An open dimension has
// the size of its symbol in open, or the size of "" there, and 3 for the channels of an image. Integer inputs that
// index a table are random token ids, with the last row of the table at the end of each sequence, where CLIP has its
// end token. Masks are ones, positions count up, and other integers are zero.
func inputsOf(file *graph.File, open map[string]int) (feeds tensor.Map, floats []string, err error) {
	feeds = tensor.Map{}
	random := rand.New(rand.NewPCG(3, 4))
	for _, in := range file.Inputs() {
		shape := shapeOf(in, open)
		n := 1
		for _, d := range shape {
			if d > maxFeed/n {
				return nil, nil, fmt.Errorf("input %s would have shape %v, more than the %d elements that check "+
					"allows", in.Name(), shape, maxFeed)
			}
			n *= max(1, d)
		}

		name := strings.ToLower(in.Name())
		if graph.Differentiable(in.DType()) && !strings.Contains(name, "mask") {
			feeds[in.Name()] = randomTensor(shape...)
			floats = append(floats, in.Name())
			continue
		}

		last := 1
		if len(shape) > 0 {
			last = shape[len(shape)-1]
		}

		rows, values := rowsBehind(file, in), make([]int64, tensor.Size(shape))
		for i := range values {
			switch {
			case strings.Contains(name, "mask"), in.DType() == graph.Bool:
				values[i] = 1
			case strings.Contains(name, "position"):
				values[i] = int64(i % last)
			case rows > 0 && len(shape) > 1 && i%last == last-1:
				values[i] = int64(rows - 1)
			case rows > 0:
				values[i] = random.Int64N(int64(rows))
			}
		}

		feeds[in.Name()] = tensor.OfInts(values, shape...)
		if graph.Differentiable(in.DType()) {
			feeds[in.Name()] = tensor.Of(slices.Repeat([]float32{1}, tensor.Size(shape)), shape...)
		}
	}

	return feeds, floats, nil
}

// maxFeed is the largest number of elements of an input: one gigabyte.
const maxFeed = 1 << 28

// fitImages sets the open heights and widths of images. It takes the first usual size that fits the shapes inside the
// graph.
func fitImages(file *graph.File, open map[string]int) {
	var sides []string
	for _, in := range file.Inputs() {
		if s := in.Shape(); len(s) == 4 && graph.Differentiable(in.DType()) {
			for _, d := range s[2:] {
				if !d.Static() && d.Sym != "" {
					sides = append(sides, d.Sym)
				}
			}
		}
	}

	if len(sides) == 0 {
		return
	}

	roots := convert.Slice(file.Outputs, nodeOf)
	for _, size := range []int{open[""], 16, 32, 64, 96, 128, 224, 256, 288, 336, 384, 448, 512} {
		for _, s := range sides {
			open[s] = size
		}
		g, in := graph.New(), map[graph.Node]graph.Node{}
		for _, n := range file.Inputs() {
			in[n] = g.Input(n.Name(), n.DType(), graph.Static(shapeOf(n, open)...))
		}
		if _, err := graph.Inline(g, roots, in); err == nil {
			return
		}
	}
}

// shapeOf returns the shape of an input, with the size in open for each open dimension.
func shapeOf(in graph.Node, open map[string]int) []int {
	shape := make([]int, len(in.Shape()))
	for i, d := range in.Shape() {
		n, named := open[d.Sym]
		switch {
		case d.Static():
			n = d.N
		case !named && i == 1 && len(shape) == 4:
			n = 3
		case !named:
			n = open[""]
		}
		shape[i] = n
	}

	return shape
}

// rowsBehind returns the size of the smallest axis that an input indexes, directly or through a change of type or
// shape. It returns 0 if no such axis has a known size.
func rowsBehind(f *graph.File, in graph.Node) int {
	same, rows := map[graph.Node]bool{in: true}, 0
	for _, o := range f.Outputs {
		for _, op := range graph.Reachable(o.Node) {
			switch op.Kind {
			case "Cast", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten":
				if len(op.In) > 0 && same[op.In[0]] {
					same[op.Out[0]] = true
				}
			case "Gather":
				axis := op.Attrs.Int("axis", 0)
				if s := op.In[0].Shape(); same[op.In[1]] && axis >= 0 && axis < len(s) && s[axis].Static() &&
					(rows == 0 || s[axis].N < rows) {
					rows = s[axis].N
				}
			}
		}
	}

	return rows
}
