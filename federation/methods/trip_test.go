package methods

import (
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Tokens of two images, and two keys. Both clusters of the first image begin at (1,0), so that all tokens name the first
// one, and the second takes the farthest token, (0,5). With room for two each, the two (1,0) get in. From then on (0,5)
// has the second cluster to itself, (1,1) is dropped, and nothing moves: 2 and 1 of 3 tokens. With room for three or
// four, (1,1) stays in the first. That one's centroid points along the second key and the other's along the first. The
// clusters of the second image begin at (4,0) and (0,4) and have two tokens each.
func TestRoutingByHand(t *testing.T) {
	tokens := tensor.Of([]float32{0, 5, 1, 0, 1, 1, 1, 0, 4, 1, 4, 0, 0, 3, 0, 4}, 2, 4, 2)
	keys := tensor.Of([]float32{0, 2, 1, 0}, 2, 2)
	for _, c := range []struct {
		capacity float64
		iters    int
		want     []float32
	}{
		{1, 100, []float32{1. / 3, 2. / 3, 0.5, 0.5}}, {2, 100, []float32{0.25, 0.75, 0.5, 0.5}},
		{1, 1, []float32{0, 1, 0.5, 0.5}}, {2, 2, []float32{0.25, 0.75, 0.5, 0.5}},
		{1.5, 100, []float32{0.25, 0.75, 0.5, 0.5}}, // room for three
	} {
		s := method.NewScope(method.Task{Tokens: 4, VisionWidth: 2}, nil)
		got := valueOf(t, routing{2, c.iters, c.capacity}.weights(s, s.Graph().Const(keys)).Op().In[0],
			tensor.Map{method.TokensInput: tokens})
		for i, want := range c.want {
			if math.Abs(float64(got.Data[i]-want)) > 1e-6 {
				t.Errorf("capacity %g, %d iterations: %v, by hand %v", c.capacity, c.iters, got.Data, c.want)
				break
			}
		}
	}
}

// Rooms by hand: 10 tokens and 4 experts have 2 each, and the first two one more; of 2·1.75 half a place is none.
func TestRooms(t *testing.T) {
	for capacity, want := range map[float64][]float32{1: {3, 3, 2, 2}, 1.75: {4, 4, 3, 3}, 2: {5, 5, 4, 4}} {
		if got := (routing{Experts: 4, Capacity: capacity}).rooms(10).Data; !slices.Equal(got, want) {
			t.Errorf("capacity %g: %v, want %v", capacity, got, want)
		}
	}
}

// The matching is the best of all permutations.
func TestMatching(t *testing.T) {
	for n := 1; n <= 6; n++ {
		scores := method.Draw(7, n, "scores", []int{5, n, n}, 1)
		g := graph.New()
		in := g.Input("scores", graph.Float, graph.Shape{graph.Sym("B"), graph.D(n), graph.D(n)})
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

// valueOf runs a graph.
func valueOf(t *testing.T, n graph.Node, in tensor.Map) *tensor.Tensor {
	t.Helper()
	model, err := graph.Model(graph.Output{Name: "value", Node: n})
	if err != nil {
		t.Fatal(err)
	}
	return orttest.Run(t, model, "", in)["value"]
}

// permutations of 0 to n-1, each once.
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

// Keys are orthonormal, or as they were drawn; the running mean begins at the first prompts. With Beta(1/2,1/2), whose
// density is 1/√(x(1-x)) up to a factor, and one round the places are 1/4 for both, so that the first prompts and
// round 0's count once each.
func TestTRIPStart(t *testing.T) {
	g := func() *method.Global {
		return &method.Global{Rounds: 1, Task: method.Task{VisionWidth: 5}, Shared: tensor.Map{
			"experts": tensor.Of([]float32{1, 2, 3}, 3, 1, 1)}, Broadcast: tensor.Map{}, State: tensor.Map{}}
	}
	for _, keys := range []string{"orthogonal", "normal", "uniform"} {
		m, err := Build("trip", nil, map[string]any{"experts": 3, "tokens": 1, "keys": keys, "average": "beta",
			"beta": 0.5})
		if err != nil {
			t.Fatal(err)
		}
		s := g()
		if err := m.Start(s); err != nil {
			t.Fatal(err)
		}
		rows, orthonormal := s.Broadcast["trip/keys"], true
		for i := range 3 {
			for j := range 3 {
				dot := 0.0
				for k, x := range rows.Row(i).Data {
					dot += float64(x) * float64(rows.Row(j).Data[k])
				}
				orthonormal = orthonormal && math.Abs(dot-map[bool]float64{true: 1}[i == j]) < 1e-6
			}
		}
		if orthonormal != (keys == "orthogonal") || (slices.Min(rows.Data) >= 0) != (keys == "uniform") {
			t.Errorf("%s: %v", keys, rows.Data)
		}
		up := method.Upload{N: 1, Shared: tensor.Map{"experts": tensor.Of([]float32{2, 2, 9}, 3, 1, 1)}}
		if err := m.Merge(s, []method.Upload{up}); err != nil {
			t.Fatal(err)
		}
		if mean := s.Broadcast["trip/average"].Data; !slices.Equal(mean, []float32{1.5, 2, 6}) {
			t.Errorf("the mean of the first prompts and round 0's is %v", mean)
		}
	}
}

// What cannot be routed is refused in one line.
func TestTRIPRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		options map[string]any
		task    method.Task
	}{
		"gives none":                     {nil, method.Task{Backbone: "rn", VisionWidth: 8}},
		"an image has 3 tokens":          {nil, method.Task{Backbone: "small", VisionWidth: 8, Tokens: 3}},
		"keys: orthogonal has 4 experts": {nil, method.Task{Backbone: "narrow", VisionWidth: 2, Tokens: 9}},
		"experts is 11; it must lie ":    {map[string]any{"experts": 11}, method.Task{}},
		"capacity is 0.5":                {map[string]any{"capacity": 0.5}, method.Task{}},
	} {
		m, err := Build("trip", nil, c.options)
		if err == nil {
			c.task.Classes, c.task.Width, c.task.Dim, c.task.TextLayers = 2, 4, 4, 1
			s := method.NewScope(c.task, m.Params(c.task))
			m.Logits(s)
			err = s.Graph().Err()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
