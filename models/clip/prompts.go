package clip

import (
	"fmt"
	"math"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// Position is the position of the class name relative to the prompt.
type Position string

// Positions of the class name, with the names of CoOp (Zhou et al. 2022).
const (
	End    Position = "end"    // [SOS prompt name . EOT], the default and the only one with a common prefix of classes
	Middle Position = "middle" // [SOS first-half name second-half . EOT]
	Front  Position = "front"  // [SOS name prompt . EOT]
)

// Prompt is one learnable prompt, which is combined with the name of every class.
type Prompt struct {
	// Ctx is [T,width], where T may differ among prompts, or [B,T,width] for each image, or with PerClass [C,T,width];
	// it is absent if there are no tokens and only Own is set.
	Ctx        graph.Node
	ReadOffset int      // read this many positions after EOT, at padding, as public FedPHA code does for short prompts
	Class      Position // empty means End
	// Deep[i] [P,width], P at most T, replaces the first P prompt tokens at the input of block i+1 (Khattak et al.,
	// MaPLe, CVPR 2023, eq. 5-6); if it is absent, the output of the block before is kept.
	Deep []graph.Node
	// NoPositions adds no positions to Ctx, as for deep prompts (Qiu et al., FedTPG, ICLR 2024, its public code).
	NoPositions bool
	// PerClass means that each class has its own prompt (Zhou et al., CoOp, IJCV 2022, section 3.2).
	PerClass bool
	// Changes are the changes of the tower for this prompt.
	Changes BlockChanges
	// Own replaces the classes' usual suffixes, unless it is nil.
	Own *Suffixes
}

// PerImage reports whether each image has its own prompt.
func (p Prompt) PerImage() bool { return p.Ctx.OK() && p.Ctx.Rank() == 3 && !p.PerClass }

// length returns T.
func (p Prompt) length() int {
	if !p.Ctx.OK() {
		return 0
	}
	return p.Ctx.Dim(-2)
}

// Prompts returns the features [C,EmbedDim] of all classes under each prompt, not normalised: the same numbers as Plain
// on the assembled sequences, with less computation.
//
// Attention is causal, so tokens after the read position have no influence, and [SOS, prompt] is the same for every
// class: its rows are computed once per prompt. Rows are, for each prompt, first this prefix, then the suffixes of all
// classes packed together; the rows of all prompts pass through each linear layer in one product. The first block's
// projections of suffix rows are constants, which ONNX Runtime folds and gradients skip. In the last block, only the
// rows that are read pass behind the attention.
//
// Prompts with the class name in another position than the end, and prompts for each class, use the plain form. Prompts
// with equal BlockChanges pass through the tower together. A prompt [B,T,width] for each image gives features
// [B·C,EmbedDim] (see forImages).
func (t Text) Prompts(g *graph.Graph, weights Weights, suffixes *Suffixes, prompts []Prompt) []graph.Node {
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
		own := p.suffixes(suffixes)
		if err := t.CheckPrompt(own, p); err != nil {
			return fail(err)
		}
		switch {
		case p.PerImage():
			out[i] = t.forImages(t.changed(g, weights, p.Changes), own, p)
		case p.Class == Middle || p.Class == Front || p.PerClass || t.plainOnly(own):
			out[i] = t.placed(t.changed(g, weights, p.Changes), own, p)
		default:
			waiting = append(waiting, i)
		}
	}

	for len(waiting) > 0 {
		tw := t.changed(g, weights, prompts[waiting[0]].Changes)
		var rows []*promptRows
		var now, later []int
		for _, i := range waiting {
			if p := prompts[i]; p.Changes.Equal(tw.changes) {
				now, rows = append(now, i), append(rows, t.rows(tw, p.suffixes(suffixes), p, graph.StaticDim(1)))
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

// changed returns the tower with changes.
func (t Text) changed(g *graph.Graph, w Weights, c BlockChanges) tower {
	tw := t.tower(g, w)
	tw.changes = c
	return tw
}

// suffixes returns the prompt's own suffixes, or those of the classes.
func (p Prompt) suffixes(s *Suffixes) *Suffixes {
	if p.Own != nil {
		return p.Own
	}
	return s
}

// CheckPrompt returns an error if a prompt cannot be used in the tower with these classes.
func (t Text) CheckPrompt(suffixes *Suffixes, prompt Prompt) error {
	switch tokens := prompt.Ctx; {
	case !tokens.OK() && prompt.Own != nil && !prompt.NoPositions:
	case !tokens.OK() || tokens.Rank() < 2 || tokens.Rank() > 3:
		return fmt.Errorf("text tower: a prompt must be [tokens,%d]", t.Width)
	case tokens.Dim(-1) != t.Width || !tokens.Shape()[tokens.Rank()-2].Static() || tokens.Dim(-2) < 1:
		return fmt.Errorf("text tower: prompt %v, must be [tokens,%d]", tokens.Shape(), t.Width)
	case prompt.NoPositions && (tokens.Rank() == 3 || prompt.Class != "" && prompt.Class != End):
		return fmt.Errorf("text tower: a prompt without positions must precede the class name and be the same for " +
			"all images")
	case prompt.PerClass && (tokens.Rank() != 3 || len(prompt.Deep) > 0):
		return fmt.Errorf("text tower: a prompt %v for each class must be [classes,tokens,%d], without deep prompts",
			tokens.Shape(), t.Width)
	case prompt.PerClass && (!tokens.Shape()[0].Static() || tokens.Dim(0) != len(suffixes.IDs)):
		return fmt.Errorf("text tower: prompts %v for each class, there are %d classes", tokens.Shape(),
			len(suffixes.IDs))
	case prompt.PerImage() && (len(prompt.Deep) > 0 || prompt.ReadOffset > 0 || prompt.Class != "" &&
		prompt.Class != End):
		return fmt.Errorf("text tower: a prompt %v for each image goes with the class name at the end and without "+
			"deep prompts", tokens.Shape())
	}

	switch {
	case suffixes.width != t.Width:
		return fmt.Errorf("text tower: class embeddings of width %d for a tower of width %d", suffixes.width, t.Width)
	case prompt.ReadOffset < 0:
		return fmt.Errorf("text tower: reads %d positions after EOT", prompt.ReadOffset)
	case prompt.Class != "" && prompt.Class != End && prompt.Class != Middle && prompt.Class != Front:
		return fmt.Errorf("text tower: class position %q, must be %s, %s or %s", prompt.Class, End, Middle, Front)
	}

	if err := t.checkPlain(suffixes, prompt); err != nil {
		return err
	}

	if err := prompt.Changes.check("text tower", t.Width, t.Layers, t.Units(), t.EmbedDim); err != nil {
		return err
	}

	if err := t.checkDeep(prompt, prompt.length()); err != nil {
		return err
	}

	return suffixes.CheckLength(t.TextArch, prompt.length(), prompt.ReadOffset)
}

// promptRows describes one prompt in the cheap form.
type promptRows struct {
	suffixes       *Suffixes
	packing        packing
	after, prefix  int        // positions after EOT; rows of [SOS, prompt]
	head, tail     graph.Node // embeddings with positions: [prefix,width], and the constant [rows,width]
	take           []int      // the class of each query of the last block, block by block
	place          []int      // position of each class's query in take
	causal, masked graph.Node // masks of attention for prefix rows and suffix rows
	dense          bool       // all rows attend to all rows, with the mask masked
	deep           []graph.Node
}

// denseRows returns the number of rows of each of some prompts, prefix and suffixes together, up to which attention
// over all pairs costs less than the operators that avoid it. On the CPU these are few. A device starts each operator
// by itself, and some 40 more for a block take as long as the pairs of 512 rows.
func denseRows(g *graph.Graph, prompts graph.Dim) int {
	const always, onDevice = 80, 512
	if g.HasKernels(graph.CPUKernels) || !prompts.Static() {
		return always
	}
	return max(always, int(onDevice/math.Sqrt(float64(prompts.N))))
}

// rows describes a prompt, one of several that pass through the tower as one node.
func (t Text) rows(tw tower, suffixes *Suffixes, prompt Prompt, several graph.Dim) *promptRows {
	rows := &promptRows{suffixes: suffixes, packing: suffixes.packing(prompt.ReadOffset), after: prompt.ReadOffset,
		prefix: 1 +
			prompt.length(), deep: prompt.Deep}
	switch rows.head = suffixes.start(tw.graph); {
	case prompt.NoPositions:
		rows.head = graph.Concat(0, rows.head.Add(t.positions(tw, 1)), prompt.Ctx)
	case prompt.Ctx.OK():
		rows.head = graph.Concat(0, rows.head, prompt.Ctx).Add(t.positions(tw, rows.prefix))
	default:
		rows.head = rows.head.Add(t.positions(tw, 1))
	}

	_, place := rows.packing.owner()
	for i := range place {
		place[i] += rows.prefix
	}

	pos := t.positions(tw, t.Context).Rows(tw.graph.Ints(place...))
	rows.tail = suffixes.packed(tw.graph, rows.packing, prompt.ReadOffset).Add(pos)
	rows.take, rows.place = rows.packing.queries()
	if rows.dense = rows.all() <= denseRows(tw.graph, several); rows.dense {
		rows.masked = suffixes.pairs(tw.graph, rows.packing, rows.after, rows.prefix)
		return rows
	}

	rows.causal = tw.graph.Const(causal(rows.prefix))
	rows.masked = suffixes.mask(tw.graph, fmt.Sprintf("mask+%d", rows.after), rows.packing,
		tensor.Indices(rows.packing.rows()))
	return rows
}

// all returns the number of rows, prefix and suffixes.
func (r *promptRows) all() int { return r.prefix + r.packing.rows() }

// shared passes all prompts through the tower together.
func (t Text) shared(tw tower, rs []*promptRows) []graph.Node {
	var heads, tails, parts []graph.Node
	var sizes, prefixes, suffixes, classes []int
	for _, r := range rs {
		heads, tails, parts = append(heads, r.head), append(tails, r.tail), append(parts, r.head, r.tail)
		prefixes, suffixes = append(prefixes, r.prefix), append(suffixes, r.packing.rows())
		classes = append(classes, len(r.packing.start))
		if r.dense {
			sizes = append(sizes, r.all())
		} else {
			sizes = append(sizes, r.prefix, r.packing.rows())
		}
	}

	hidden := graph.Concat(0, parts...)
	for i := range t.Layers {
		block := tw.block(i)
		hidden = deepened(hidden, rs, i)
		last := i == t.Layers-1
		if block.kernels() {
			qkv, queries := packedRows(block, i, hidden, rs), spans(rs)
			if last {
				read, all := readRows(rs), queries
				hidden, queries = hidden.Rows(tw.graph.Ints(read...)), nil
				for _, row := range read {
					queries = append(queries, all[row])
				}
			}
			hidden = block.rest(hidden, nn.PackedAttention(qkv, queries, block.heads))
			continue
		}

		from := 0
		if last {
			from = 1
		}

		var qkv []projected // of each prompt in turn: all rows if there are few, else prefix and suffix
		var normed graph.Node
		if i == 0 {
			hd, tl := block.norm1(graph.Concat(0, heads...)), block.norm1(graph.Concat(0, tails...))
			a := block.project(hd, from, 3).split(prefixes)
			c := block.project(tl, from, 3).split(suffixes)
			for j, r := range rs {
				if r.dense {
					qkv = append(qkv, a[j].followed(c[j]))
				} else {
					qkv = append(qkv, a[j], c[j])
				}
			}
			normed = graph.Concat(0, hd, tl)
		} else {
			normed = block.norm1(hidden)
			qkv = block.project(normed, from, 3).split(sizes)
		}

		if last {
			hidden = t.finish(block, rs, hidden, normed, i == 0, qkv)
			continue
		}

		var attended []graph.Node
		for _, r := range rs {
			if r.dense {
				h := qkv[0].heads(block, 1, r.all())
				attended, qkv = append(attended, nn.MergeHeads(nn.Attend(h[0], h[1], h[2], r.masked))), qkv[1:]
			} else {
				attended, qkv = append(attended, r.attend(block, qkv[0], qkv[1])...), qkv[2:]
			}
		}

		hidden = block.rest(hidden, graph.Concat(0, attended...))
	}

	f := t.head(tw, hidden)
	if len(rs) == 1 {
		return []graph.Node{f}
	}

	return f.Split(0, classes...)
}

// readRows lists the rows from which the features of all prompts are read, in the order of shared.
func readRows(rs []*promptRows) (read []int) {
	at := 0
	for _, r := range rs {
		read = append(read, r.packing.last(at+r.prefix)...)
		at += r.all()
	}
	return read
}

// kernels reports whether attention can be one operator.
func (b block) kernels() bool {
	d := b.width / b.heads
	return b.graph.HasKernels(graph.DeviceKernels) && d%graph.KernelWidth == 0 && d <= 8*graph.KernelWidth
}

// packedRows returns the projections [N,3·width] of all rows. Those of the first block's suffixes are constants.
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

// spans returns the ranges of rows that each row attends to, and the row: for the prefix, the rows up to itself; for a
// suffix, the prefix and its own class up to itself. Attention is faster for four rows with the same first range.
func spans(rs []*promptRows) (out [][5]int) {
	for _, r := range rs {
		at := len(out)
		for i := range r.prefix {
			first := at + i/4*4
			out = append(out, [5]int{at, first, first, at + i + 1, at + i})
		}
		class, place := r.packing.owner()
		for i, c := range class {
			row := at + r.prefix + i
			s := [5]int{at, at + r.prefix, row, row + 1, row} // a padding row attends to itself
			if c >= 0 {
				s[2] -= place[i]
			}
			out = append(out, s)
		}
	}

	return out
}

// attend returns the attention outputs of the prefix rows and of the suffix rows.
func (r *promptRows) attend(b block, prefix, suffix projected) []graph.Node {
	a, c := prefix.heads(b, 1, r.prefix), suffix.heads(b, 1, r.packing.rows())
	return []graph.Node{nn.MergeHeads(nn.Attend(a[0], a[1], a[2], r.causal)),
		nn.MergeHeads(r.attendShared(b, c[0], a[1], a[2], c[1], c[2], r.masked))}
}

// attendShared returns shared-prefix attention: suffix queries q [B,heads,blocks·n,d] attend to the prefix's keys and
// values [B,heads,prefix,d], which all queries share, and to those of their own block among [B,heads,rows,d], under one
// softmax. Scores against the prefix are one product per head over all rows. B is 1 unless there are prompts for each
// image.
func (r *promptRows) attendShared(b block, q, keys, values, ownKeys, ownValues, mask graph.Node) graph.Node {
	d, n := q.Dim(-1), q.Dim(2)/r.packing.blocks
	blocks := func(x graph.Node, rows int) graph.Node { return x.Reshape(-1, r.packing.blocks, rows, x.Dim(-1)) }
	own := nn.AttentionScores(blocks(q, n), blocks(ownKeys, r.packing.size)).Add(mask)
	shared := blocks(nn.AttentionScores(q, keys), n)
	a := graph.Concat(3, shared, own).Softmax(-1).Split(3, r.prefix, r.packing.size)
	out := a[0].Reshape(-1, b.heads, r.packing.blocks*n, r.prefix).MatMul(values)
	return out.Add(a[1].MatMul(blocks(ownValues, r.packing.size)).Reshape(-1, b.heads, r.packing.blocks*n, d))
}

// checkDeep returns an error if the deep prompts do not fit a prompt of the given number of tokens.
func (t Text) checkDeep(p Prompt, tokens int) error {
	switch {
	case len(p.Deep) > max(t.Layers-1, 0):
		return fmt.Errorf("text tower: %d deep prompts for %d blocks after the first", len(p.Deep), t.Layers-1)
	case len(p.Deep) > 0 && p.Class != "" && p.Class != End:
		return fmt.Errorf("text tower: deep prompts precede the class name; its position is %s", p.Class)
	}

	for i, d := range p.Deep {
		if d.OK() && (!matrix(d, -1, t.Width) || d.Dim(0) < 1 || d.Dim(0) > tokens) {
			return fmt.Errorf("text tower: the deep prompt of block %d is %v, must be [1 to %d,%d]", i+1, d.Shape(),
				tokens, t.Width)
		}
	}

	return nil
}

// deepened replaces the first prompt rows of hidden, the rows of all prompts, by the deep prompts of block i. They are
// the same for every class, like [SOS, prompt], so all classes still share one prefix.
func deepened(hidden graph.Node, rs []*promptRows, i int) graph.Node {
	var parts []graph.Node
	from, at, changed := 0, 0, false
	for _, r := range rs {
		if i > 0 && i <= len(r.deep) && r.deep[i-1].OK() {
			parts = append(parts, hidden.Slice(0, from, at+1), r.deep[i-1])
			from, changed = at+1+r.deep[i-1].Dim(0), true
		}
		at += r.all()
	}

	if !changed {
		return hidden
	}

	return graph.Concat(0, append(parts, hidden.Slice(0, from, at))...)
}

// finish computes the last block for the rows that are read. hidden and normed are the residual rows and their norm; kv
// holds keys and values of all rows, in the order of shared. If this is also the first block (headsFirst), the rows of
// normed have another order: all prefixes, then all suffixes.
func (t Text) finish(block block, rs []*promptRows, hidden, normed graph.Node, headsFirst bool,
	kv []projected) graph.Node {
	g := block.graph
	var readNorm, counts []int
	prefixes, suffixes, read := 0, 0, readRows(rs)
	for _, r := range rs {
		prefixes += r.prefix
	}

	for _, r := range rs {
		readNorm = append(readNorm, r.packing.last(prefixes+suffixes)...)
		suffixes += r.packing.rows()
		counts = append(counts, len(r.packing.start))
	}

	if !headsFirst {
		readNorm = read
	}

	q := block.project(normed.Rows(g.Ints(readNorm...)), 0, 1).split(counts)
	attended := make([]graph.Node, len(rs))
	for j, r := range rs {
		if r.dense {
			h := kv[0].heads(block, 1, r.all())
			query := q[j].heads(block, 1, len(r.packing.start))[0]
			attended[j], kv = nn.MergeHeads(nn.Attend(query, h[0], h[1], r.suffixes.pairsOfLast(g, r.packing, r.after,
				r.prefix))), kv[1:]
		} else {
			attended[j], kv = r.attendLast(block, q[j], kv[0], kv[1]), kv[2:]
		}
	}

	return block.rest(hidden.Rows(g.Ints(read...)), graph.Concat(0, attended...))
}

// attendLast returns attention with one query per class, q [C,width], as [C,width].
func (r *promptRows) attendLast(b block, q, prefix, suffix projected) graph.Node {
	a, c := prefix.heads(b, 1, r.prefix), suffix.heads(b, 1, r.packing.rows())
	rows := q.nodes[0]
	if !isIota(r.take) {
		rows = rows.Rows(b.graph.Ints(r.take...))
	}

	query := nn.SplitHeads(rows, 1, 1, len(r.take), b.heads)[0]
	out := nn.MergeHeads(r.attendShared(b, query, a[0], a[1], c[0], c[1], r.maskOfLast(b.graph)))
	if !isIota(r.place) {
		out = out.Rows(b.graph.Ints(r.place...))
	}

	return out
}

// queries returns the rows that are read for the classes in take, after the given number of other rows.
func (r *promptRows) queries(before int) []int {
	last := r.packing.last(before)
	return convert.Slice(r.take, func(c int) int { return last[c] })
}

// maskOfLast returns the mask of the queries in take.
func (r *promptRows) maskOfLast(g *graph.Graph) graph.Node {
	return r.suffixes.mask(g, fmt.Sprintf("last+%d", r.after), r.packing, r.queries(0))
}
