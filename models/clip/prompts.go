package clip

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// Position is where the class name stands relative to the prompt.
type Position string

// Positions of the class name, as CoOp (Zhou et al. 2022) calls them.
const (
	End    Position = "end"    // [SOS prompt name . EOT], the default and the only one that shares work among classes
	Middle Position = "middle" // [SOS first-half name second-half . EOT]
	Front  Position = "front"  // [SOS name prompt . EOT]
)

// Prompt is one learnable prompt that every class's name is put behind.
type Prompt struct {
	// Ctx is [T,width], where prompts may differ in T, [B,T,width] for each image, or with PerClass [C,T,width]; absent
	// where there are no tokens, of Own alone.
	Ctx   graph.Node
	After int      // read this many positions behind EOT, on padding, as public FedPHA code does for short prompts
	Class Position // End when empty
	// Deep[i] [P,width], P at most T, takes the place of the first P prompt tokens at the input of block i+1 (Khattak
	// et al., MaPLe, CVPR 2023, eq. 5-6); where it is absent, the tokens go on from the block before.
	Deep []graph.Node
	// Bare leaves Ctx without positions, as deep prompts are (Qiu et al., FedTPG, ICLR 2024, its public code).
	Bare bool
	// PerClass tells that each class has a prompt of its own (Zhou et al., CoOp, IJCV 2022, section 3.2).
	PerClass bool
	// Changes of the tower that this prompt goes through.
	Changes Changes
	// Own are other suffixes than the classes' usual ones; nil for those.
	Own *Suffixes
}

// PerImage tells whether each image has a prompt of its own.
func (p Prompt) PerImage() bool { return p.Ctx.OK() && p.Ctx.Rank() == 3 && !p.PerClass }

// length is T.
func (p Prompt) length() int {
	if !p.Ctx.OK() {
		return 0
	}
	return p.Ctx.Dim(-2)
}

// Prompts gives the features [C,EmbedDim] of all classes under each prompt, not normalised: the same numbers as Plain
// on the assembled sequences, for less work.
//
// Attention is causal, so nothing behind the read position counts, and [SOS, prompt] looks the same from every class:
// its rows are computed once per prompt. Rows are, for each prompt, first that prefix, then the suffixes of all classes
// packed together; the rows of all prompts go through each linear layer in one product. The first block's projections
// of suffix rows are constants, which ONNX Runtime folds and gradients do not enter. In the last block only the rows
// that are read go on beyond keys and values.
//
// Prompts whose class name stands elsewhere than at the end, and prompts for each class, take the plain form; those of
// one Changes go through the tower together. A prompt [B,T,width], one for each image, gives features [B·C,EmbedDim]
// (see forImages).
func (t Text) Prompts(g *graph.Graph, w Weights, s *Suffixes, prompts []Prompt) []graph.Node {
	out := make([]graph.Node, len(prompts))
	fail := func(err error) []graph.Node {
		for i := range out {
			out[i] = g.Fail("%w", err)
		}
		return out
	}
	if err := t.Check(); err != nil {
		return fail(err)
	}
	var waiting []int
	for i, p := range prompts {
		own := p.suffixes(s)
		if err := t.CheckPrompt(own, p); err != nil {
			return fail(err)
		}
		switch {
		case p.PerImage():
			out[i] = t.forImages(t.changed(g, w, p.Changes), own, p)
		case p.Class == Middle || p.Class == Front || p.PerClass || t.plainOnly(own):
			out[i] = t.placed(t.changed(g, w, p.Changes), own, p)
		default:
			waiting = append(waiting, i)
		}
	}
	if !g.HasKernels() { // whose attention takes prompts of any lengths at once
		waiting = t.stacked(g, w, s, prompts, waiting, out)
	}
	for len(waiting) > 0 {
		tw := t.changed(g, w, prompts[waiting[0]].Changes)
		var rows []*promptRows
		var now, later []int
		for _, i := range waiting {
			if p := prompts[i]; p.Changes.Equal(tw.changes) {
				now, rows = append(now, i), append(rows, t.rows(tw, p.suffixes(s), p))
			} else {
				later = append(later, i)
			}
		}
		for k, f := range t.shared(tw, rows) {
			out[now[k]] = f
		}
		waiting = later
	}
	return out
}

// stacked runs prompts that differ in nothing but their numbers as one [n,T,width], as if they were those of n images,
// so that a device gets as few operators for many as for one. It gives those of waiting that have no equals.
func (t Text) stacked(g *graph.Graph, w Weights, s *Suffixes, prompts []Prompt, waiting []int,
	out []graph.Node) (rest []int) {
	equal := func(a, b Prompt) bool {
		return a.length() == b.length() && a.suffixes(s) == b.suffixes(s) && a.Changes.Equal(b.Changes)
	}
	for len(waiting) > 0 {
		first := prompts[waiting[0]]
		var same, others []int
		var tokens []graph.Node
		for _, i := range waiting {
			if p := prompts[i]; p.Ctx.OK() && !p.Bare && p.After == 0 && len(p.Deep) == 0 && equal(p, first) {
				same, tokens = append(same, i), append(tokens, p.Ctx)
			} else {
				others = append(others, i)
			}
		}
		if len(same) < 2 {
			rest, waiting = append(rest, waiting[0]), waiting[1:]
			continue
		}
		own := first.suffixes(s)
		f := t.forImages(t.changed(g, w, first.Changes), own, Prompt{Ctx: graph.Stack(tokens...)})
		for k, part := range f.Split(0, slices.Repeat([]int{len(own.IDs)}, len(same))...) {
			out[same[k]] = part
		}
		waiting = others
	}
	return rest
}

// changed is the tower with changes.
func (t Text) changed(g *graph.Graph, w Weights, c Changes) tower {
	tw := t.tower(g, w)
	tw.changes = c
	return tw
}

// suffixes are the prompt's own, or those of the classes.
func (p Prompt) suffixes(s *Suffixes) *Suffixes {
	if p.Own != nil {
		return p.Own
	}
	return s
}

// CheckPrompt tells why a prompt cannot go through the tower with these classes, if anything.
func (t Text) CheckPrompt(s *Suffixes, p Prompt) error {
	switch tokens := p.Ctx; {
	case !tokens.OK() && p.Own != nil && !p.Bare:
	case !tokens.OK() || tokens.Rank() < 2 || tokens.Rank() > 3:
		return fmt.Errorf("text tower: a prompt must be [tokens,%d]", t.Width)
	case tokens.Dim(-1) != t.Width || !tokens.Shape()[tokens.Rank()-2].Static() || tokens.Dim(-2) < 1:
		return fmt.Errorf("text tower: prompt %v, must be [tokens,%d]", tokens.Shape(), t.Width)
	case p.Bare && (tokens.Rank() == 3 || p.Class != "" && p.Class != End):
		return fmt.Errorf("text tower: a prompt without positions stands in front of the class name, the same for " +
			"all images")
	case p.PerClass && (tokens.Rank() != 3 || len(p.Deep) > 0):
		return fmt.Errorf("text tower: a prompt %v for each class must be [classes,tokens,%d], without deep prompts",
			tokens.Shape(), t.Width)
	case p.PerClass && (!tokens.Shape()[0].Static() || tokens.Dim(0) != len(s.IDs)):
		return fmt.Errorf("text tower: prompts %v for each class, there are %d classes", tokens.Shape(), len(s.IDs))
	case p.PerImage() && (len(p.Deep) > 0 || p.After > 0 || p.Class != "" && p.Class != End):
		return fmt.Errorf("text tower: a prompt %v for each image goes with the class name at the end and without "+
			"deep prompts", tokens.Shape())
	}
	switch {
	case s.width != t.Width:
		return fmt.Errorf("text tower: class embeddings of width %d for a tower of width %d", s.width, t.Width)
	case p.After < 0:
		return fmt.Errorf("text tower: reads %d positions behind EOT", p.After)
	case p.Class != "" && p.Class != End && p.Class != Middle && p.Class != Front:
		return fmt.Errorf("text tower: class position %q, must be %s, %s or %s", p.Class, End, Middle, Front)
	}
	if err := t.checkPlain(s, p); err != nil {
		return err
	}
	if err := p.Changes.check("text tower", t.Width, t.Layers, t.Units(), t.EmbedDim); err != nil {
		return err
	}
	if err := t.checkDeep(p, p.length()); err != nil {
		return err
	}
	return s.Fits(t.TextArch, p.length(), p.After)
}

// promptRows is what the cheap form knows about one prompt.
type promptRows struct {
	s              *Suffixes
	p              packing
	after, prefix  int        // positions behind EOT; rows of [SOS, prompt]
	head, tail     graph.Node // embeddings with positions: [prefix,width], and the constant [rows,width]
	take           []int      // the class of each query of the last block, block by block
	place          []int      // where each class went among those
	causal, masked graph.Node // masks of prefix and suffix attention
	dense          bool       // all rows attend to all, under one mask: masked
	deep           []graph.Node
}

// denseRows is up to how many rows of a prompt, prefix and suffixes together, attention over all pairs costs less than
// the operators that avoid it.
const denseRows = 80

func (t Text) rows(tw tower, s *Suffixes, p Prompt) *promptRows {
	r := &promptRows{s: s, p: s.packing(p.After), after: p.After, prefix: 1 + p.length(), deep: p.Deep}
	switch r.head = s.start(tw.g); {
	case p.Bare:
		r.head = graph.Concat(0, r.head.Add(t.positions(tw, 1)), p.Ctx)
	case p.Ctx.OK():
		r.head = graph.Concat(0, r.head, p.Ctx).Add(t.positions(tw, r.prefix))
	default:
		r.head = r.head.Add(t.positions(tw, 1))
	}
	_, place := r.p.owner()
	for i := range place {
		place[i] += r.prefix
	}
	pos := t.positions(tw, t.Context).Rows(tw.g.Ints(place...))
	r.tail = s.packed(tw.g, r.p, p.After).Add(pos)
	r.take, r.place = r.p.queries()
	if r.dense = r.all() <= denseRows; r.dense {
		r.masked = s.pairs(tw.g, r.p, r.after, r.prefix)
		return r
	}
	r.causal = tw.g.Const(causal(r.prefix))
	r.masked = s.mask(tw.g, fmt.Sprintf("mask+%d", r.after), r.p, iota(r.p.rows()))
	return r
}

// all is the number of rows, prefix and suffixes.
func (r *promptRows) all() int { return r.prefix + r.p.rows() }

// shared runs all prompts through the tower together.
func (t Text) shared(tw tower, rs []*promptRows) []graph.Node {
	var heads, tails, parts []graph.Node
	var sizes, prefixes, suffixes []int
	for _, r := range rs {
		heads, tails, parts = append(heads, r.head), append(tails, r.tail), append(parts, r.head, r.tail)
		prefixes, suffixes = append(prefixes, r.prefix), append(suffixes, r.p.rows())
		if r.dense {
			sizes = append(sizes, r.all())
		} else {
			sizes = append(sizes, r.prefix, r.p.rows())
		}
	}
	x := graph.Concat(0, parts...)
	for i := range t.Layers {
		b := tw.block(i)
		x = deepened(x, rs, i)
		last := i == t.Layers-1
		from := 0
		if last {
			from = 1
		}
		if b.kernels() && !last {
			x = b.rest(x, nn.PackedAttention(packedRows(b, i, x, rs), spans(rs), b.heads))
			continue
		}
		var qkv []projected // of each prompt in turn: all rows where they are few, else prefix and suffix
		var h graph.Node
		if i == 0 {
			hd, tl := b.norm1(join(heads)), b.norm1(join(tails))
			a := b.project(hd, from, 3).split(prefixes)
			c := b.project(tl, from, 3).split(suffixes)
			for j, r := range rs {
				if r.dense {
					qkv = append(qkv, a[j].followed(c[j]))
				} else {
					qkv = append(qkv, a[j], c[j])
				}
			}
			h = graph.Concat(0, hd, tl)
		} else {
			h = b.norm1(x)
			qkv = b.project(h, from, 3).split(sizes)
		}
		if last {
			return t.finish(b, rs, x, h, i == 0, qkv)
		}
		var attended []graph.Node
		for _, r := range rs {
			if r.dense {
				h := qkv[0].heads(b, 1, r.all())
				attended, qkv = append(attended, nn.Rows(nn.Attend(h[0], h[1], h[2], r.masked))), qkv[1:]
			} else {
				attended, qkv = append(attended, r.attend(b, qkv[0], qkv[1])...), qkv[2:]
			}
		}
		x = b.rest(x, join(attended))
	}
	return nil
}

// kernels tells whether attention may be one operator.
func (b block) kernels() bool {
	d := b.width / b.heads
	return b.g.HasKernels() && d%graph.KernelWidth == 0 && d <= 8*graph.KernelWidth
}

// packedRows are the projections [N,3·width] of all rows. Those of the first block's suffixes are constants.
func packedRows(b block, i int, x graph.Node, rs []*promptRows) graph.Node {
	if i > 0 {
		return b.project(b.norm1(x), 0, 3).joined()
	}
	var parts []graph.Node
	for _, r := range rs {
		parts = append(parts, b.project(b.norm1(r.head), 0, 3).joined(), b.project(b.norm1(r.tail), 0, 3).joined())
	}
	return graph.Concat(0, parts...)
}

// spans are the rows that each row sees: of the prefix, those up to itself; of a suffix, the prefix and its own class
// up to itself.
func spans(rs []*promptRows) (out [][4]int) {
	for _, r := range rs {
		at := len(out)
		for i := range r.prefix {
			out = append(out, [4]int{at, at + i + 1})
		}
		class, place := r.p.owner()
		for i, c := range class {
			row := at + r.prefix + i
			s := [4]int{at, at + r.prefix, row, row + 1} // a row that only fills up sees itself
			if c >= 0 {
				s[2] -= place[i]
			}
			out = append(out, s)
		}
	}
	return out
}

func join(a []graph.Node) graph.Node {
	if len(a) == 1 {
		return a[0]
	}
	return graph.Concat(0, a...)
}

// attend gives the attention's output for the prefix rows and for the suffix rows.
func (r *promptRows) attend(b block, prefix, suffix projected) []graph.Node {
	a, c := prefix.heads(b, 1, r.prefix), suffix.heads(b, 1, r.p.rows())
	return []graph.Node{nn.Rows(nn.Attend(a[0], a[1], a[2], r.causal)),
		nn.Rows(r.attendShared(b, c[0], a[1], a[2], c[1], c[2], r.masked))}
}

// attendShared is shared-prefix attention: that of suffix queries q [B,heads,blocks·n,d] to the prefix's keys and
// values [B,heads,prefix,d], which all queries share, and to those of their own block among [B,heads,rows,d], under one
// softmax. Scores against the prefix are one product per head over all rows. B is 1 but of prompts for each image.
func (r *promptRows) attendShared(b block, q, keys, values, ownKeys, ownValues, mask graph.Node) graph.Node {
	d, n := q.Dim(-1), q.Dim(2)/r.p.blocks
	blocks := func(x graph.Node, rows int) graph.Node { return x.Reshape(-1, r.p.blocks, rows, x.Dim(-1)) }
	own := nn.Scores(blocks(q, n), blocks(ownKeys, r.p.size)).Add(mask)
	shared := blocks(nn.Scores(q, keys), n)
	a := graph.Concat(3, shared, own).Softmax(-1).Split(3, r.prefix, r.p.size)
	out := a[0].Reshape(-1, b.heads, r.p.blocks*n, r.prefix).MatMul(values)
	return out.Add(a[1].MatMul(blocks(ownValues, r.p.size)).Reshape(-1, b.heads, r.p.blocks*n, d))
}
