package routing

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Tokens of two images, and two keys. Both clusters of the first image begin at (1,0), so all tokens choose the first,
// and the second takes the farthest token, (0,5). With a capacity of two each, the two (1,0) are assigned. From then on
// (0,5) has the second cluster to itself, (1,1) is dropped, and nothing moves: 2 and 1 of 3 tokens. With a capacity of
// three or four, (1,1) stays in the first. Its centroid points along the second key, the other along the first. The
// clusters of the second image begin at (4,0) and (0,4) and have two tokens each. The third number of all is 0.
func TestRoutingByHand(t *testing.T) {
	tokens := tensor.Of([]float32{0, 5, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 4, 1, 0, 4, 0, 0, 0, 3, 0, 0, 4, 0}, 2, 4, 3)
	keys := tensor.Of([]float32{0, 2, 0, 1, 0, 0}, 2, 3)
	for _, c := range []struct {
		capacity float64
		iters    int
		want     []float32
	}{
		{1, 20, []float32{1. / 3, 2. / 3, 0.5, 0.5}}, {2, 20, []float32{0.25, 0.75, 0.5, 0.5}},
		{1, 1, []float32{0, 1, 0.5, 0.5}}, {2, 2, []float32{0.25, 0.75, 0.5, 0.5}},
		{1.5, 20, []float32{0.25, 0.75, 0.5, 0.5}}, // a capacity of three
	} {
		g := graph.New()
		in := g.Input("tokens", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(4), graph.StaticDim(3)})
		got := valueOf(t, Routing{2, c.iters, c.capacity}.Weights(in, g.Const(keys)), tensor.Map{"tokens": tokens})
		for i, want := range c.want {
			if math.Abs(float64(got.Data[i]-want)) > 1e-6 {
				t.Errorf("capacity %g, %d iterations: %v, by hand %v", c.capacity, c.iters, got.Data, c.want)
				break
			}
		}
	}
}

// A graph holds no square of the number of tokens, which a client on another machine names: that of 8,192 tokens has
// 256 MiB.
func TestGraphOfManyTokens(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	g := graph.New()
	in := g.Input("tokens", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(8192), graph.StaticDim(3)})
	Routing{2, 20, 1}.Weights(in, g.Const(tensor.New(2, 3)))
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; g.Err() != nil || n > 64<<20 {
		t.Errorf("%d bytes, %v", n, g.Err())
	}
}

// Capacities by hand: 10 tokens and 4 experts have 2 each, and the first two one more. 2·1.75 rounds down.
func TestRooms(t *testing.T) {
	for capacity, want := range map[float64][]float32{1: {3, 3, 2, 2}, 1.75: {4, 4, 3, 3}, 2: {5, 5, 4, 4}} {
		if got := (Routing{Experts: 4, Capacity: capacity}).rooms(10).Data; !slices.Equal(got, want) {
			t.Errorf("capacity %g: %v, want %v", capacity, got, want)
		}
	}
}

// Two clusters of 10 tokens begin at a quarter and at three quarters of them, three of 3 at each.
func TestInitialCenters(t *testing.T) {
	for experts, c := range map[int]struct {
		n    int
		want []int64
	}{2: {10, []int64{2, 7}}, 3: {3, []int64{0, 1, 2}}} {
		if got := (Routing{Experts: experts}).InitialCenters(c.n).Ints; !slices.Equal(got, c.want) {
			t.Errorf("%d clusters of %d: %v, want %v", experts, c.n, got, c.want)
		}
	}
}

// The matching is the best of all permutations.
func TestMatching(t *testing.T) {
	for n := 1; n <= 6; n++ {
		scores := drawn(n)
		g := graph.New()
		in := g.Input("scores", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(n), graph.StaticDim(n)})
		got := valueOf(t, matching(in), tensor.Map{"scores": scores})
		for b := range 5 {
			best, sum := math.Inf(-1), 0.0
			permutations(n, func(p []int) {
				total := 0.0
				for i, j := range p {
					total += float64(scores.Row(b).Row(i).Data[j])
				}
				best = max(best, total)
			})
			for i, x := range got.Row(b).Data {
				sum += float64(x) * float64(scores.Row(b).Data[i])
			}
			columns := make([]float32, n)
			for i := range n {
				for j, x := range got.Row(b).Row(i).Data {
					columns[j] += x
				}
				if slices.Max(got.Row(b).Row(i).Data) != 1 {
					t.Errorf("row %d of %d is %v", i, n, got.Row(b).Row(i).Data)
				}
			}
			if slices.Min(columns) != 1 || slices.Max(columns) != 1 || math.Abs(sum-best) > 1e-5 {
				t.Errorf("%d rows: %v gives %g, the best is %g", n, got.Row(b).Data, sum, best)
			}
		}
	}
}

// valueOf runs a graph and returns its value.
func valueOf(t *testing.T, n graph.Node, in tensor.Map) *tensor.Tensor {
	t.Helper()
	model, err := graph.Model(graph.Output{Name: "value", Node: n})
	goldentest.NoError(t, err)
	return orttest.Run(t, model, "", in)["value"]
}

// drawn returns random scores [5,n,n].
func drawn(n int) *tensor.Tensor {
	t, r := tensor.New(5, n, n), rand.New(rand.NewPCG(7, uint64(n)))
	for i := range t.Data {
		t.Data[i] = float32(r.NormFloat64())
	}
	return t
}

// permutations visits each permutation of 0 to n-1 once.
func permutations(n int, visit func([]int)) {
	p, used := []int{}, make([]bool, n)
	var next func()
	next = func() {
		if len(p) == n {
			visit(p)
			return
		}
		for j := range n {
			if !used[j] {
				used[j], p = true, append(p, j)
				next()
				used[j], p = false, p[:len(p)-1]
			}
		}
	}
	next()
}
