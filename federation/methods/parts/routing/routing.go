// Package routing computes weights of experts for images from their tokens, as TRIP (arXiv 2504.21063) does: k-means of
// limited capacity and a matching of its clusters with keys, as graph nodes.
package routing

import (
	"math/bits"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	_ "promptfed/runtime/ops" // defines the operators
	"promptfed/runtime/tensor"
)

// Routing computes weights of E experts for an image: k-means of limited capacity makes E clusters of its tokens, each
// cluster goes to one key, and the weight of that key's expert is the cluster's share of the tokens that have a
// cluster.
//
// A cluster takes floor(floor(N/E) capacity) tokens, and one more if it is among the first N mod E. Until centroids
// move by less than 1e-4 in the mean, every token names the cluster whose distance from it plus multiplier is least,
// and gets in if fewer tokens than there is room for name the same one at less cost; others are dropped. Then each
// multiplier grows by 1e-4 (size - room), and each centroid is the mean of its tokens; an empty cluster takes the token
// farthest from all centroids, and the multiplier 0. Clusters and keys are matched one to one so that the sum of their
// cosines is largest. All of it is a constant for gradients. Ties go to who comes first; of tokens
// that are equally far, an empty cluster takes the mean.
//
// The public code begins at tokens drawn from a stream that depends on the order of images; ours are evenly spaced, so
// that weights are the image's alone.
type Routing struct {
	Experts, Iters int // E, of whose keys the matching writes out 2^E sets; iterations at most
	Capacity       float64
}

// Weights are [B,E], rows of sum 1, for tokens [B,N,v], N at least E, and keys [E,v].
func (r Routing) Weights(tokens, keys graph.Node) graph.Node {
	g := tokens.Graph()
	starts := convert.Slice(r.InitialCenters(tokens.Dim(1)).Ints, func(at int64) int { return int(at) })
	centre := tokens.MeanKeep(1) // distances of what is near 0 lose fewer digits
	tokens = tokens.Sub(centre)
	centroids := tokens.Gather(1, g.Ints(starts...))    // [B,E,v]
	none := centroids.Sum(-1).MulScalar(0).Unsqueeze(1) // [B,1,E]
	on := none.SumKeep(-1).AddScalar(1)                 // [B,1,1]
	out := graph.While(r.Iters, on, func(st []graph.Node) ([]graph.Node, graph.Node) {
		next, multiplier, size := r.iterate(st[0], st[1], st[2])
		move := next.Sub(st[1]).Square().SumKeep(-1).Sqrt().MeanKeep(1)
		return []graph.Node{st[0], next, multiplier, size}, move.Greater(move.ScalarLike(1e-4))
	}, tokens, centroids, none, none)

	match := matching(out[1].Add(centre).L2Normalize().MatMul(keys.L2Normalize().T()))
	size := out[3].MatMul(match) // [B,1,E]
	return size.Div(size.SumKeep(-1)).Squeeze(1)
}

// InitialCenters are the places of the tokens, of n, that the clusters begin at, [E].
func (r Routing) InitialCenters(n int) *tensor.Tensor {
	out := tensor.OfInts(make([]int64, r.Experts), r.Experts)
	for e := range out.Ints {
		out.Ints[e] = int64((2*e + 1) * n / (2 * r.Experts))
	}
	return out
}

// rooms are how many tokens the clusters take, [1,E].
func (r Routing) rooms(n int) *tensor.Tensor {
	out := tensor.New(1, r.Experts)
	for e := range out.Data {
		if out.Data[e] = float32(int(float64(n/r.Experts) * r.Capacity)); e < n%r.Experts {
			out.Data[e]++
		}
	}
	return out
}

// iterate makes one iteration for tokens [B,N,v], centroids c [B,E,v] and multipliers [B,1,E], and returns sizes too.
func (r Routing) iterate(tokens, c, multiplier graph.Node) (next, multipliers, size graph.Node) {
	g, n := tokens.Graph(), tokens.Dim(1)
	rooms := r.rooms(n)
	apart := tokens.Square().SumKeep(-1).Add(c.Square().Sum(-1).Unsqueeze(1)).Sub(tokens.MatMul(c.T()).MulScalar(2)).
		ReLU().Sqrt()
	names, cost := least(apart.Add(multiplier))                           // [B,N,E], [B,N,1]
	places := g.Ints(tensor.Indices(n)...).Cast(graph.Float).Unsqueeze(1) // [N,1]
	cheaper := cost.Greater(cost.T()).Cast(graph.Float).Add(cost.Equal(cost.T()).Cast(graph.Float).Mul(
		places.Greater(places.T()).Cast(graph.Float))) // [B,N,N], whether token j goes before token i
	before := names.MatMul(names.T()).Mul(cheaper).SumKeep(-1)
	in := names.MatMul(g.Const(tensor.Of(rooms.Data, r.Experts, 1))).Greater(before).Cast(graph.Float).Mul(names)
	size = in.SumKeep(1)
	one := size.ScalarLike(1)
	mean := in.T().MatMul(tokens).Div(size.Max(one).T())
	nearest := reduced(apart, "ReduceMin", -1) // [B,N,1]
	far := nearest.Equal(reduced(nearest, "ReduceMax", 1)).Cast(graph.Float)
	farthest := far.Div(far.SumKeep(1)).T().MatMul(tokens) // [B,1,v]
	next = one.Greater(size.T()).Where(farthest, mean)
	multipliers = one.Greater(size).Where(size.ScalarLike(0), multiplier.Add(size.Sub(g.Const(rooms)).MulScalar(1e-4)))
	return next, multipliers, size
}

// triangle [n,n] is 1 above the diagonal.
func triangle(n int) *tensor.Tensor {
	out := tensor.New(n, n)
	for i := range n {
		for j := i + 1; j < n; j++ {
			out.Row(i).Data[j] = 1
		}
	}
	return out
}

// reduced is a reduction that keeps its axis.
func reduced(x graph.Node, kind string, axis int) graph.Node {
	return x.Graph().Apply(graph.Standard, kind, graph.Attrs{"keepdims": graph.Attr(1)}, x, x.Graph().Ints(axis))
}

// least are the first smallest entries of the last axis, as 1 among zeros, and their values, whose last axis is 1.
func least(x graph.Node) (first, value graph.Node) {
	value = reduced(x, "ReduceMin", -1)
	first = x.Equal(value).Cast(graph.Float)
	earlier := first.MatMul(x.Graph().Const(triangle(x.Dim(-1))))
	return first.Mul(earlier.Neg().AddScalar(1).ReLU()), value
}

// matching returns, for scores [B,n,n], the permutation matrices whose sum of scores is largest. best[S] is the largest
// sum of the first |S| rows with the columns S, which is that of one row less and one column less plus a score; going
// back from all columns tells what was chosen.
func matching(scores graph.Node) graph.Node {
	g, n := scores.Graph(), scores.Dim(-1)
	flat := scores.Reshape(-1, n*n)
	best := flat.Gather(1, g.Ints(0)).MulScalar(0) // of no columns
	choices, chosen := make([]*choice, n), make([]graph.Node, n)
	for row := range n {
		c := choicesOf(n, row)
		sums := best.Gather(1, g.Ints(c.from...)).Add(flat.Gather(1, g.Ints(c.score...)))
		first, least := least(sums.Reshape(-1, c.sets, row+1).Neg())
		best = least.Reshape(-1, c.sets).Neg()
		choices[row], chosen[row] = c, first.Reshape(-1, c.sets*(row+1))
	}

	rows := make([]graph.Node, n)
	at := best.MulScalar(0).AddScalar(1) // all columns
	for row := n - 1; row >= 0; row-- {
		c := choices[row]
		taken := at.Gather(1, g.Ints(c.set...)).Mul(chosen[row])
		rows[row] = taken.MatMul(g.Const(c.columns)).Unsqueeze(1)
		at = taken.MatMul(g.Const(c.before))
	}

	return graph.Concat(1, rows...)
}

// choice lists how a row's column can be the last of the sets of row+1 columns, which are sorted by the numbers whose
// bits they are: the set that it is of, the set without it, and its score.
type choice struct {
	sets             int
	set, from, score []int
	// [choices,n] and [choices,smaller sets]: the column and the smaller set, 1 among zeros
	columns, before *tensor.Tensor
}

func choicesOf(n, row int) *choice {
	choices := &choice{}
	smaller := map[int]int{}
	for s := range 1 << n {
		if bits.OnesCount(uint(s)) == row {
			smaller[s] = len(smaller)
		}
	}

	var columns []int
	for s := range 1 << n {
		if bits.OnesCount(uint(s)) != row+1 {
			continue
		}
		for j := range n {
			if s>>j&1 == 1 {
				choices.set, choices.from = append(choices.set, choices.sets), append(choices.from, smaller[s&^(1<<j)])
				choices.score, columns = append(choices.score, row*n+j), append(columns, j)
			}
		}
		choices.sets++
	}

	choices.columns, choices.before = tensor.New(len(columns), n), tensor.New(len(columns), len(smaller))
	for i, j := range columns {
		choices.columns.Row(i).Data[j], choices.before.Row(i).Data[choices.from[i]] = 1, 1
	}

	return choices
}
