package exported

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// stream is the residual stream of an image transformer that is not recognised as CLIP's: prompt tokens join it before
// the first block and before later ones. The blocks run as exported, on more tokens: constant sizes in the graph are
// changed.
//
// A transformer treats its tokens as a set, except for tokens whose position it reads. So an image whose tokens are all
// duplicated has unchanged features, since softmax and means over doubled values equal those over the values. This is
// checked before the first prompt.
type stream struct {
	values     []graph.Node // input of the first block, and of later ones if they were found
	axis, rows int          // of the tokens
	width      int
	norm       weights // of the layer norm before the first block, if there is one
	eps        float64
	at         map[graph.Node]graph.Node // all values, for refBatch images
	input      graph.Shape               // its shape
	proof      func() error
}

// refBatch is the batch that distinguishes sizes: a prime that no size of a tower has.
const refBatch = 100003

// findStream finds the residual stream of a tower for any number of images.
func (t *imageTower) findStream(dir string, run bundle.Runner) (*stream, error) {
	if t.batch > 0 || t.open != nil {
		return nil, errors.New("its batch was fixed by the export")
	}

	if op := rounds(t.output); op != nil {
		return nil, fmt.Errorf("%s rounds activations", op.Label())
	}

	stream := &stream{at: map[graph.Node]graph.Node{}}
	g := graph.New()
	pixels := t.feed(g, bundle.AddPixelsInput(g, refBatch, t.size))
	stream.input = pixels.Shape()
	feed := map[graph.Node]graph.Node{t.input: pixels}
	_, err := graph.InlineWith(g, []graph.Node{t.output}, feed, func(op *graph.Op, in []graph.Node,
		apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
		out, err := apply(in)
		for i, n := range out {
			stream.at[op.Out[i]] = n
		}
		return out, err
	})

	if err != nil {
		return nil, err
	}

	matcher := newMatcher(dir, "visual.", t.output, t.input)
	var sums []graph.Node // the input of the first block, and the residual sums after it
	attentions := 0
	for _, op := range graph.Reachable(t.output) {
		if slices.Contains([]string{"Softmax", "Attention", "MultiHeadAttention"}, op.Kind) &&
			matcher.active[op.Out[0]] {
			attentions++
		}

		if !is(op.Out[0], "Add") || !matcher.active[op.X(0)] || !matcher.active[op.X(1)] || !stream.tokens(op.Out[0]) {
			continue
		}

		for _, first := range []graph.Node{op.X(0), op.X(1)} {
			if len(sums) == 0 && stream.tokens(first) && matcher.dominates(first, t.output) {
				sums = append(sums, first)
			}
		}

		if len(sums) > 0 && slices.Equal(stream.sizes(op.Out[0]), stream.sizes(sums[0])) {
			sums = append(sums, op.Out[0])
		}
	}

	if len(sums) == 0 || attentions == 0 {
		return nil, errors.New("no residual blocks with attention were found after an embedding of patches")
	}

	// A block has one sum after its attention and one after its feed-forward layers; attention may also pool the
	// tokens.
	stream.values = sums[:1]
	if blocks := len(sums) / 2; len(sums)%2 == 1 && (attentions == blocks || attentions == blocks+1) {
		var starts []graph.Node
		for i := range blocks {
			starts = append(starts, sums[2*i])
		}
		if !slices.ContainsFunc(starts, func(n graph.Node) bool { return !matcher.dominates(n, t.output) }) {
			stream.values = starts
		}
	}

	first := stream.sizes(stream.values[0])
	stream.axis = 1 - slices.Index(first, refBatch)
	stream.rows, stream.width = first[stream.axis], first[2]
	stream.norm = weights{}
	if _, err := matcher.normAt(matcher.back(stream.values[0], arranging), "ln_pre", stream.norm); err != nil {
		stream.norm = nil
	}

	stream.eps = matcher.eps
	stream.proof = sync.OnceValue(func() error { return t.proveStream(stream, dir, run) })
	return stream, nil
}

func (s *stream) sizes(n graph.Node) []int {
	out, _ := s.at[n].Shape().Ints()
	return out
}

// tokens reports whether a value is [images,tokens,width] or [tokens,images,width].
func (s *stream) tokens(n graph.Node) bool {
	d := s.sizes(n)
	return len(d) == 3 && (d[0] == refBatch) != (d[1] == refBatch) && d[2] > 1 && d[2] != refBatch
}

// dominates reports whether every path from the pixels to the features passes through n.
func (m *matcher) dominates(n, output graph.Node) bool {
	seen := map[graph.Node]bool{}
	visit := []graph.Node{output}
	for len(visit) > 0 {
		at := visit[len(visit)-1]
		visit = visit[:len(visit)-1]
		if at == n || seen[at] {
			continue
		}
		if seen[at] = true; slices.Contains(m.feeds, at) {
			return false
		}
		for _, in := range at.Op().In {
			if in.OK() && m.active[in] {
				visit = append(visit, in)
			}
		}
	}

	return true
}

// streamed returns the tower with prompt tokens after those of the image, with the blocks as exported.
func (t *imageTower) streamed(g *graph.Graph, stream *stream, pixels graph.Node,
	prompts clip.VisionPrompts) graph.Node {
	switch {
	case !prompts.Changes.None():
		return g.Fail("an exported image tower that is not recognised as CLIP's vision transformer supports prompt " +
			"tokens and prompts of pixels, but no low-rank changes or adapters; convert the checkpoint for those")
	case prompts.LastTokens:
		return g.Fail("an exported image tower that is not recognised as CLIP's vision transformer has no accessible " +
			"tokens after its last block; convert the checkpoint for those")
	case len(prompts.Deep) >= len(stream.values):
		return g.Fail("%d deep prompts for the %d blocks that were found", len(prompts.Deep), len(stream.values))
	}

	tokens := prompts.Tokens
	if tokens.OK() && stream.norm != nil && !prompts.Normed {
		w := named{"", stream.norm}
		tokens = nn.LayerNorm(tokens, w.Node(g, "ln_pre.weight", stream.width), w.Node(g, "ln_pre.bias", stream.width),
			stream.eps)
	}

	feed := t.feed(g, pixels)
	first := inlined(g, stream.values[:1], map[graph.Node]graph.Node{t.input: feed}, nil)[0]
	return stream.through(g, t, first, stream.rows, feed, func(block int, x graph.Node, count int) (graph.Node, int) {
		now := tokens
		if block > 0 {
			if now = (graph.Node{}); block <= len(prompts.Deep) {
				now = prompts.Deep[block-1]
			}
		}
		if !now.OK() {
			return x, count
		}
		return stream.join(x, count, now)
	})
}

// through passes hidden, the input of the first block, through all blocks; enter may change the input of each block.
func (s *stream) through(g *graph.Graph, t *imageTower, hidden graph.Node, count int, feed graph.Node,
	enter func(block int, x graph.Node, count int) (graph.Node, int)) graph.Node {
	for i, from := range s.values {
		to := t.output
		if i+1 < len(s.values) {
			to = s.values[i+1]
		}
		hidden, count = enter(i, hidden, count)
		hidden = s.rest(g, hidden, from, to, count, t.input, feed)
	}

	return hidden.Cast(graph.Float)
}

// proveStream compares the features of images with those of images whose tokens are all duplicated.
func (t *imageTower) proveStream(s *stream, dir string, run bundle.Runner) error {
	g := graph.New()
	feed := t.feed(g, bundle.AddPixelsInput(g, 2, t.size))
	list := inlined(g, []graph.Node{s.values[0], t.output}, map[graph.Node]graph.Node{t.input: feed}, nil)
	twice := s.through(g, t, graph.Concat(s.axis, list[0], list[0]), 2*s.rows, feed,
		func(_ int, x graph.Node, count int) (graph.Node, int) { return x, count })
	in := tensor.Map{bundle.PixelsInput: t.example(2)}
	_, err := bundle.TwoForms{Got: twice.L2Normalize(), Want: list[1].Cast(graph.Float).L2Normalize(), In: in}.Compare(
		dir, run)
	if err != nil {
		return fmt.Errorf("with all tokens twice, %w", err)
	}

	return nil
}

// join puts tokens [P,w] or [B,P,w] after the first s.rows tokens of hidden, in place of any tokens there.
func (s *stream) join(hidden graph.Node, count int, tokens graph.Node) (graph.Node, int) {
	if s.axis == 0 {
		hidden = hidden.Transpose(1, 0, 2)
	}

	hidden, count = clip.Appended(hidden, count, s.rows, tokens)
	if s.axis == 0 {
		hidden = hidden.Transpose(1, 0, 2)
	}

	return hidden, count
}

// rest computes a later value of the export from hidden, which replaces an earlier value, with count tokens in place of
// s.rows.
func (s *stream) rest(g *graph.Graph, hidden, from, to graph.Node, count int, input, feed graph.Node) graph.Node {
	targets := map[*graph.Op][]int{}
	if count != s.rows {
		// The changes are determined with refBatch images, for which all sizes are static.
		h := graph.New()
		sizes := slices.Clone(s.sizes(from))
		sizes[s.axis] = count
		fixed := map[graph.Node]graph.Node{from: h.Input("x", graph.Float, graph.Static(sizes...)),
			input: h.Input("feed", feed.DType(), s.input)}
		w := &widening{s, count, map[graph.Node][]spot{from: {{s.axis, 1}}}, targets}
		if inlined(h, []graph.Node{to}, fixed, w.transform); h.Err() != nil {
			return g.Fail("%w", h.Err())
		}
	}

	replace := map[graph.Node]graph.Node{from: hidden, input: feed}
	return inlined(g, []graph.Node{to}, replace, func(op *graph.Op, in []graph.Node,
		apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
		if sizes, ok := targets[op]; ok {
			in = slices.Clone(in)
			in[1] = g.Ints(sizes...)
		}
		return apply(in)
	})[0]
}

// widening follows which axes of each value count tokens when there are count tokens and not rows, and finds the
// targets of Reshape and Expand that must change.
type widening struct {
	*stream
	count   int
	spots   map[graph.Node][]spot
	targets map[*graph.Op][]int
}

func (w *widening) transform(op *graph.Op, in []graph.Node,
	apply func([]graph.Node) ([]graph.Node, error)) ([]graph.Node, error) {
	var carried []spot
	for _, n := range op.In {
		if carried = w.spots[n]; len(carried) > 0 {
			break
		}
	}

	kind := op.Kind
	if data := len(op.In) > 0 && len(w.spots[op.In[0]]) > 0; op.Domain != graph.Standard || !data {
		kind = ""
	}

	switch kind {
	case "Reshape":
		var err error
		if carried, err = w.reshape(op); err != nil {
			return nil, err
		}
	case "Expand":
		if slices.Equal(w.at[op.In[1]].ConstantInts(), in[1].ConstantInts()) {
			sizes := slices.Clone(w.sizes(op.Out[0]))
			for _, at := range carried {
				sizes[len(sizes)-len(w.sizes(op.In[0]))+at.axis] = 1
			}
			if slices.ContainsFunc(sizes, func(d int) bool { return d%refBatch == 0 }) {
				return nil, errTokens
			}
			w.targets[op] = sizes
		}
	}

	if sizes, ok := w.targets[op]; ok {
		in = slices.Clone(in)
		in[1] = in[1].Graph().Ints(sizes...)
	}

	out, err := apply(in)
	if err != nil {
		return nil, err
	}

	for i, n := range out {
		was, now := w.sizes(op.Out[i]), n.Shape()
		if len(was) != len(now) {
			continue
		}

		for axis, d := range now {
			if d.Is(was[axis]) {
				continue
			}
			at := spot{axis, 1}
			if was[axis] != w.rows && len(carried) > 0 {
				at.outer = carried[0].outer
			}
			w.spots[op.Out[i]] = append(w.spots[op.Out[i]], at)
		}
	}

	return out, nil
}

var errTokens = errors.New("the tokens are not an axis of their own any more")

// reshape finds the positions of the tokens after a Reshape, and its new target.
func (w *widening) reshape(op *graph.Op) ([]spot, error) {
	from, to := w.sizes(op.In[0]), w.sizes(op.Out[0])
	target, o := slices.Clone(to), opening{n: w.rows}
	var out []spot
	for _, at := range w.spots[op.In[0]] {
		fit := o.targets(from, at, to)
		if len(fit) == 0 {
			return nil, errTokens
		}
		out = append(out, fit[0])
		target[fit[0].axis] = to[fit[0].axis] / w.rows * w.count
	}

	open := 0
	for i, d := range target {
		if d%refBatch == 0 {
			target[i] = -1
			open++
		}
	}

	if open > 1 {
		return nil, errTokens
	}

	w.targets[op] = target
	return out, nil
}
