package clip

import (
	"fmt"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// finish computes the last block and the projection. x and h are the residual rows and their norm; kv holds keys and
// values of all rows, in the order of shared. Only the rows that are read have queries. If this is also the first block
// (headsFirst), the rows of h have another order: all prefixes, then all suffixes.
func (t Text) finish(b block, rs []*promptRows, x, h graph.Node, headsFirst bool, kv []projected) []graph.Node {
	g := b.g
	var read, readNorm, counts []int
	at, prefixes, suffixes := 0, 0, 0
	for _, r := range rs {
		prefixes += r.prefix
	}
	for _, r := range rs {
		for _, row := range r.p.last() {
			read = append(read, at+r.prefix+row)
			readNorm = append(readNorm, prefixes+suffixes+row)
		}
		at += r.all()
		suffixes += r.p.rows()
		counts = append(counts, len(r.p.start))
	}
	if !headsFirst {
		readNorm = read
	}
	q := b.project(h.Rows(g.Ints(readNorm...)), 0, 1).split(counts)
	attended := make([]graph.Node, len(rs))
	for j, r := range rs {
		if r.dense {
			h := kv[0].heads(b, 1, r.all())
			query := q[j].heads(b, 1, len(r.p.start))[0]
			attended[j], kv = nn.MergeHeads(nn.Attend(query, h[0], h[1], r.s.pairsOfLast(g, r.p, r.after,
				r.prefix))), kv[1:]
		} else {
			attended[j], kv = r.attendLast(b, q[j], kv[0], kv[1]), kv[2:]
		}
	}
	y := b.rest(x.Rows(g.Ints(read...)), join(attended))
	f := t.head(b.tower, y)
	if len(rs) == 1 {
		return []graph.Node{f}
	}
	return f.Split(0, counts...)
}

// attendLast returns attention with one query per class, q [C,width], as [C,width].
func (r *promptRows) attendLast(b block, q, prefix, suffix projected) graph.Node {
	a, c := prefix.heads(b, 1, r.prefix), suffix.heads(b, 1, r.p.rows())
	rows := q.nodes[0]
	if !isIota(r.take) {
		rows = rows.Rows(b.g.Ints(r.take...))
	}
	query := nn.SplitHeads(rows, 1, 1, len(r.take), b.heads)[0]
	out := nn.MergeHeads(r.attendShared(b, query, a[0], a[1], c[0], c[1], r.maskOfLast(b.g)))
	if !isIota(r.place) {
		out = out.Rows(b.g.Ints(r.place...))
	}
	return out
}

// maskOfLast returns the mask of the queries in take.
func (r *promptRows) maskOfLast(g *graph.Graph) graph.Node {
	last := r.p.last()
	queries := make([]int, len(r.take))
	for i, c := range r.take {
		queries[i] = last[c]
	}
	return r.s.mask(g, fmt.Sprintf("last+%d", r.after), r.p, queries)
}
