package clip

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// BlockChanges are learnable parts inside the blocks of a transformer, whose own weights stay constant and in their
// files. The zero value has no changes.
type BlockChanges struct {
	LowRank  []LowRank
	Adapters []Adapter
}

// LowRank adds x A B to a linear map of rows x: A [in,rank], B [rank,out] (Hu et al., LoRA, ICLR 2022, eq. 3, whose
// matrices are the transposes; its factor alpha/rank is part of B). Several changes of one map are summed.
type LowRank struct {
	Block int // counted from 0; ignored for Head
	Map   LinearMap
	A, B  graph.Node
}

// LinearMap is a linear map of a tower.
type LinearMap string

// The maps of a block, and the projection to the space of image and text features.
const (
	Query LinearMap = "q"
	Key   LinearMap = "k"
	Value LinearMap = "v"
	Out   LinearMap = "out" // of the attention
	Up    LinearMap = "up"  // of the feed-forward layers
	Down  LinearMap = "down"
	Head  LinearMap = "head"
)

// BlockMaps returns the maps of every block, in order.
func BlockMaps() []LinearMap { return []LinearMap{Query, Key, Value, Out, Up, Down} }

// Sizes returns the input and output dimension of a map in a tower of the given width, units and embedding dimension.
func (m LinearMap) Sizes(width, units, embedDim int) (in, out int) {
	switch m {
	case Up:
		return width, units
	case Down:
		return units, width
	case Head:
		return width, embedDim
	}

	return width, width
}

// Adapter is a bottleneck of linear layers with ReLU between them, A(h) = W_n … ReLU(W_1 h + b_1) … + b_n, in one
// block.
type Adapter struct {
	Block  int // counted from 0
	Place  AdapterPlacement
	Layers []Layer
	Scale  float64 // of the output
	// Rescale gives the adapter's layers the gradients that they have at Scale 1, and the tower the exact gradient, as
	// the public code of pFedMMA (2025) does.
	Rescale bool
}

// Layer is W x + b of an adapter: W [out,in], b [out] or absent.
type Layer struct{ W, B graph.Node }

// AdapterPlacement is the place of an adapter in a block.
type AdapterPlacement string

const (
	// Parallel adds A(ln_1 x) to the output of the whole block (pFedMMA, 2025).
	Parallel AdapterPlacement = "beside"
	// Sequential replaces the output y of the feed-forward layers by y + A(y), before the residual sum (Houlsby et al.,
	// Parameter-Efficient Transfer Learning for NLP, ICML 2019, figure 2; the second of its two places).
	Sequential AdapterPlacement = "behind"
)

// None reports whether there are no changes.
func (c BlockChanges) None() bool { return len(c.LowRank)+len(c.Adapters) == 0 }

// Equal reports whether two changes have the same nodes at the same places.
func (c BlockChanges) Equal(d BlockChanges) bool {
	return slices.Equal(c.LowRank, d.LowRank) && slices.EqualFunc(c.Adapters, d.Adapters, func(a, b Adapter) bool {
		same := slices.Equal(a.Layers, b.Layers)
		a.Layers, b.Layers = nil, nil
		return same && a.Block == b.Block && a.Place == b.Place && a.Scale == b.Scale && a.Rescale == b.Rescale
	})
}

// check returns an error if a change does not fit a tower.
func (c BlockChanges) check(what string, width, layers, units, embedDim int) error {
	for _, l := range c.LowRank {
		in, out := l.Map.Sizes(width, units, embedDim)
		switch {
		case l.Map != Head && !slices.Contains(BlockMaps(), l.Map):
			return fmt.Errorf("%s: a low-rank change of %q, must be one of %v or %s", what, l.Map, BlockMaps(), Head)
		case l.Map != Head && (l.Block < 0 || l.Block >= layers):
			return fmt.Errorf("%s: a low-rank change in block %d of %d", what, l.Block, layers)
		case !matrix(l.A, in, -1) || !matrix(l.B, -1, out) || l.A.Dim(1) != l.B.Dim(0):
			return fmt.Errorf("%s: a low-rank change %v %v of %s, must be [%d,rank] and [rank,%d]", what, l.A, l.B,
				l.Map, in, out)
		}
	}

	for _, a := range c.Adapters {
		if a.Block < 0 || a.Block >= layers || len(a.Layers) == 0 || a.Place != Parallel && a.Place != Sequential {
			return fmt.Errorf("%s: an adapter of %d layers in block %d of %d, %q; its place must be %s or %s", what,
				len(a.Layers), a.Block, layers, a.Place, Parallel, Sequential)
		}

		in := width
		for i, l := range a.Layers {
			out := -1
			if i == len(a.Layers)-1 {
				out = width
			}
			if !matrix(l.W, out, in) || l.B.OK() && (l.B.Rank() != 1 || l.B.Dim(0) != l.W.Dim(0)) {
				return fmt.Errorf("%s: layer %d of an adapter is %v with the bias %v; from width to width %d", what, i,
					l.W, l.B, width)
			}
			in = l.W.Dim(0)
		}
	}

	return nil
}

// matrix reports whether a node has two static sizes, which equal rows and cols unless these are -1.
func matrix(n graph.Node, rows, cols int) bool {
	if !n.OK() {
		return false
	}
	s, ok := n.Shape().Ints()
	return ok && len(s) == 2 && (rows < 0 || s[0] == rows) && (cols < 0 || s[1] == cols)
}

// changed adds scale times the output of low-rank changes for rows x [N,in] to y, the concatenated output of some maps
// with width columns each.
func (b block) changed(y, x graph.Node, scale float64, width int, maps ...LinearMap) graph.Node {
	var down, up []graph.Node
	for _, l := range b.changes.LowRank {
		i := slices.Index(maps, l.Map)
		if i < 0 || l.Map != Head && l.Block != b.index {
			continue
		}
		out := l.B.MulScalar(scale)
		if len(maps) > 1 {
			out = pad(out, 0, i*width, 0, (len(maps)-1-i)*width)
		}
		down, up = append(down, l.A), append(up, out)
	}

	if len(down) == 0 {
		return y
	}

	return b.graph.Apply(graph.Standard, "Gemm", nil, x.MatMul(graph.Concat(1, down...)), graph.Concat(0, up...), y)
}

// feedForward returns the MLP of rows h [N,width], with its changes.
func (b block) feedForward(h graph.Node) graph.Node {
	fc, fcBias := b.affine(".mlp.c_fc", b.mlp, b.width)
	proj, projBias := b.affine(".mlp.c_proj", b.width, b.mlp)
	change := func(width int, m LinearMap) func(y, x graph.Node, scale float64) graph.Node {
		return func(y, x graph.Node, scale float64) graph.Node { return b.changed(y, x, scale, width, m) }
	}
	y := nn.MLP(h, fc, fcBias, proj, projBias, b.act, change(b.mlp, Up), change(b.width, Down))
	for _, a := range b.changes.Adapters {
		if a.Block == b.index && a.Place == Sequential {
			y = y.Add(a.Apply(y))
		}
	}

	return y
}

// parallel adds the parallel adapters of the block to its output y; x is its input.
func (b block) parallel(y, x graph.Node) graph.Node {
	for _, a := range b.changes.Adapters {
		if a.Block == b.index && a.Place == Parallel {
			y = y.Add(a.Apply(b.norm1(x)))
		}
	}
	return y
}

// Apply returns Scale A(h) for rows h [N,width].
func (a Adapter) Apply(h graph.Node) graph.Node {
	if a.Rescale { // the value is h, the gradient is multiplied by Scale
		h = h.MulScalar(a.Scale).Add(h.Detach().MulScalar(1 - a.Scale))
	}

	for i, l := range a.Layers {
		if i > 0 {
			h = h.ReLU()
		}
		h = nn.Linear(h, l.W, l.B, 1, 1)
	}

	if a.Rescale { // the value is Scale h, the gradient is multiplied by 1
		return h.Add(h.Detach().MulScalar(a.Scale - 1))
	}

	return h.MulScalar(a.Scale)
}
