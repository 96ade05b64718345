package exported

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/graph"
)

// describe lists values for messages: name, type and shape of each.
func describe(list []graph.Node) string {
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprintf("%s %s%v", n.Name(), strings.ToLower(n.DType().String()), n.Shape()))
	}
	return bundle.OrNone(out)
}

func outputs(f *graph.File) []graph.Node {
	var out []graph.Node
	for _, o := range f.Outputs {
		out = append(out, o.Node)
	}
	return out
}

// namedInput looks up an input that bundle.json names.
func namedInput(f *graph.File, key, name string) (graph.Node, error) {
	for _, n := range f.Inputs() {
		if n.Name() == name {
			return n, nil
		}
	}
	return graph.Node{}, fmt.Errorf("%s %q in %s is none of its inputs %s", key, name, bundle.ManifestFile,
		describe(f.Inputs()))
}

// pick is the output that holds the features of a tower: the one named, the only one that could, or one under a name
// that says so.
func pick(f *graph.File, section, name string, usual []string, could func(graph.Node) bool) (graph.Output, error) {
	var fit []graph.Output
	for _, o := range f.Outputs {
		if name != "" && o.Name == name {
			return o, nil
		}
		if (o.Node.Rank() == 2 || o.Node.Rank() < 0) && graph.Differentiable(o.Node.DType()) && could(o.Node) {
			fit = append(fit, o)
		}
	}
	if name != "" {
		return graph.Output{}, fmt.Errorf("%s.output %q in %s is none of its outputs %s", section, name,
			bundle.ManifestFile,
			describe(outputs(f)))
	}
	if len(fit) == 1 {
		return fit[0], nil
	}
	for _, u := range usual {
		if i := slices.IndexFunc(fit, func(o graph.Output) bool { return o.Name == u }); i >= 0 {
			return fit[i], nil
		}
	}
	return graph.Output{}, fmt.Errorf("the output that holds the features is not clear among %s: write \"%s\": "+
		"{\"output\": NAME} "+
		"in %s", describe(outputs(f)), section, bundle.ManifestFile)
}

// reached lists the inputs that n depends on, in the order of the file.
func reached(f *graph.File, n graph.Node) []graph.Node {
	behind := graph.Inputs(n)
	var out []graph.Node
	for _, in := range f.Inputs() {
		if slices.Contains(behind, in) {
			out = append(out, in)
		}
	}
	return out
}

func isFloat(n graph.Node) bool { return n.DType() != 0 && graph.Differentiable(n.DType()) }

func isInt(n graph.Node) bool { return n.DType() == graph.Int64 || n.DType() == graph.Int32 }

func takesPixels(f *graph.File, n graph.Node) bool {
	return slices.ContainsFunc(reached(f, n), func(in graph.Node) bool { return isFloat(in) && in.Rank() == 4 })
}

func takesText(f *graph.File, n graph.Node) bool {
	return slices.ContainsFunc(reached(f, n), func(in graph.Node) bool {
		return isInt(in) || isFloat(in) &&
			in.Rank() == 3
	})
}

// staticAxis is the size of an axis, 0 where it is open or n is absent.
func staticAxis(n graph.Node, axis int) int {
	if !n.OK() {
		return 0
	}
	if s := n.Shape(); axis < len(s) && s[axis].Static() {
		return s[axis].N
	}
	return 0
}

// Limits of the sizes that an export fixes. As many images or texts as its batch has go through a tower at a time,
// however few there are, so a batch of 1024 images of 224 pixels takes 0.6 GB for the pixels alone.
const (
	maxBatch   = 1 << 10
	maxContext = 1 << 13 // tokens of a text
	maxSide    = 1 << 12 // pixels
	maxInput   = 1 << 28 // numbers of one batch: pixels, or embeddings of tokens
)

// checkBatch refuses inputs [batch,sizes...] that are too large to be held; batch is 0 where it is open.
func checkBatch(in graph.Node, batch int, sizes ...int) error {
	const hint = "export it with an open batch (dynamic_axes or dynamic_shapes), or a smaller one"
	if batch > maxBatch {
		return fmt.Errorf("input %s: its batch is fixed at %d, and at most %d are supported, as so many rows are in "+
			"memory however few are needed: %s", describe([]graph.Node{in}), batch, maxBatch, hint)
	}
	n := max(1, batch)
	for _, s := range sizes {
		if s > maxInput/n {
			return fmt.Errorf("input %s: a batch of %d times %v numbers is more than the %d that are supported: %s",
				describe([]graph.Node{in}), max(1, batch), sizes, maxInput, hint)
		}
		n *= max(1, s)
	}
	return nil
}

// maxChunks is how often a tower of a fixed batch may stand in one graph.
const maxChunks = 256

// chunks are the rows 0 to n-1 in runs of a fixed batch; the last one is filled up with its last row.
func chunks(n, batch int) ([][]int, error) {
	if n < 1 || (n-1)/batch >= maxChunks {
		return nil, fmt.Errorf("its batch is fixed at %d, which would take too many copies of it for %d rows: export "+
			"it with an open batch (dynamic_axes or dynamic_shapes)", batch, n)
	}
	out := make([][]int, (n+batch-1)/batch)
	for i := range out {
		for j := range batch {
			out[i] = append(out[i], min(i*batch+j, n-1))
		}
	}
	return out, nil
}
