package methods_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// columns returns the columns of a matrix in float64.
func columns(t *tensor.Tensor) [][]float64 {
	out := make([][]float64, t.Shape[1])
	for i := range t.Shape[0] {
		for j := range out {
			out[j] = append(out[j], float64(t.Data[i*t.Shape[1]+j]))
		}
	}
	return out
}

func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// gramSchmidt makes columns orthonormal, one after the other.
func gramSchmidt(cols [][]float64) [][]float64 {
	for j, x := range cols {
		for _, before := range cols[:j] {
			along := dot(before, x)
			for i := range x {
				x[i] -= along * before[i]
			}
		}
		length := math.Sqrt(dot(x, x))
		for i := range x {
			x[i] /= length
		}
	}
	return cols
}

// A step of DP-FPL from its trace alone. V0 determines the factors U and V of local. They determine the gradients of
// the factors from the raw gradient G; these gradients are clipped and receive the traced noise times z C. sign: minus
// assembles the gradient of local (DP-FPL's file has the formulas).
func TestDPFPLFromItsTrace(t *testing.T) {
	const clip, noise, rank = 0.02, 0.3, 2
	got := methodtest.Traced(t, "dpfpl", nil, options{"tokens": 3, "rank": rank, "clip": clip, "noise": noise}, 1,
		spec.Training{Epochs: 1, Optim: optim.Config{Name: "sgd", LR: 0.1}})
	for _, step := range []string{"r0/c0/s0/", "r0/c1/s0/"} {
		p := columns(got[step[:6]+"begin/local"]) // [w] columns of [T]
		g := columns(got[step+"grad_raw/local"])
		rows, wide := len(p[0]), len(p)
		// times returns the product of a matrix, given by its columns, with a column.
		times := func(cols [][]float64, x []float64) []float64 {
			out := make([]float64, len(cols[0]))
			for j, col := range cols {
				for i, v := range col {
					out[i] += v * x[j]
				}
			}
			return out
		}
		transposed := func(cols [][]float64, x []float64) (out []float64) {
			for _, col := range cols {
				out = append(out, dot(col, x))
			}
			return out
		}
		var u, v, byU, byV [][]float64
		for _, x := range columns(got[step+"draw/dpfpl/v0"]) {
			u = append(u, times(p, x))
		}
		u = gramSchmidt(u)
		for _, x := range u {
			v = append(v, transposed(p, x))
		}
		v = gramSchmidt(v)
		for k := range rank {
			byU, byV = append(byU, times(g, v[k])), append(byV, transposed(g, u[k]))
		}
		release := func(x [][]float64, e func(k, i int) float64) {
			norm := 0.0
			for _, col := range x {
				norm += dot(col, col)
			}
			scale := min(1, clip/math.Sqrt(norm))
			for k, col := range x {
				for i := range col {
					col[i] = col[i]*scale + noise*clip*e(k, i)
				}
			}
		}
		eu, ev := got[step+"draw/dpfpl/u"], got[step+"draw/dpfpl/v"]
		release(byU, func(k, i int) float64 { return float64(eu.Data[i*rank+k]) })
		release(byV, func(k, i int) float64 { return float64(ev.Data[k*wide+i]) })
		for i := range rows {
			for j := range wide {
				want := 0.0
				for k := range rank {
					inside := 0.0 // Uᵀ g_U
					for l := range rank {
						inside += dot(u[k], byU[l]) * v[l][j]
					}
					want += byU[k][i]*v[k][j] + u[k][i]*byV[k][j] - u[k][i]*inside
				}
				if x := float64(got[step+"grad/local"].Data[i*wide+j]); math.Abs(x-want) > 1e-6 {
					t.Fatalf("%s: the gradient of local at %d, %d is %g, from the trace %g", step, i, j, x, want)
				}
			}
		}
	}
}

// TRIP's weights of an image from its trace alone: k-means of its tokens from the traced starts, with capacity 1 and
// one iteration, and the best match of the clusters with the traced keys. A batch of one image has one prompt, the
// experts' sum with these weights, so the ratios of the experts' gradients are those of the weights.
func TestTRIPFromItsTrace(t *testing.T) {
	const experts = 3
	m := methodtest.Build(t, "trip", nil, options{"tokens": 2, "experts": experts, "alpha": 0.0, "iters": 1})
	rec := trace.NewRecorder()
	enginetest.Run(t, &spec.Experiment{Method: m, Classes: methodtest.Classes,
		Template: "a photo of a {}.", Clients: methodtest.ClientsOfOneBackbone(4, 3), Plan: spec.Plan{Rounds: 1,
			Seed: 5}, Training: spec.Training{Epochs: 1, Batch: 1, Optim: optim.Config{Name: "sgd", LR: 0.1}}},
		engine.Settings{Client: client.Settings{Tracer: rec}})
	different := map[string]bool{}
	for _, s := range rec.Steps {
		turn := fmt.Sprintf("r0/c%d/", s.Client)
		step := fmt.Sprintf("%ss%d/", turn, s.Step)
		tokens, starts := rec.Tensors[step+"tokens"].Row(0), rec.Tensors[turn+"constant/trip/starts"]
		weights := routed1(tokens, starts.Ints, rec.Tensors[turn+"down/trip/keys"])
		g := rec.Tensors[step+"grad/experts"]
		var norms []float64
		total := 0.0
		for e := range experts {
			norms = append(norms, g.Row(e).Norm())
			total += norms[e]
		}
		for e, w := range weights {
			if math.Abs(norms[e]/total-w) > 1e-5 {
				t.Errorf("%s: the gradients' shares are %v of %g, the weights %v", step, norms, total, weights)
				break
			}
		}
		different[fmt.Sprint(weights)] = true
	}
	if len(different) < 2 {
		t.Errorf("all images have the same weights: %v", different)
	}
}

// routed1 returns the result of one iteration of TRIP's routing for one image's tokens [N,v] and keys [E,v]: clusters
// of floor(N/E) tokens, one more for the first N mod E, the nearest tokens first.
func routed1(tokens *tensor.Tensor, starts []int64, keys *tensor.Tensor) []float64 {
	n, k := tokens.Shape[0], len(starts)
	distance := func(a, b []float32) float64 {
		sum := 0.0
		for i, x := range a {
			sum += (float64(x) - float64(b[i])) * (float64(x) - float64(b[i]))
		}
		return math.Sqrt(sum)
	}
	nearest, cost := make([]int, n), make([]float64, n)
	order := make([]int, n)
	for i := range n {
		order[i], cost[i] = i, math.Inf(1)
		for e, s := range starts {
			if d := distance(tokens.Row(i).Data, tokens.Row(int(s)).Data); d < cost[i] {
				nearest[i], cost[i] = e, d
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case cost[a] < cost[b]:
			return -1
		case cost[a] > cost[b]:
			return 1
		}
		return 0
	})
	size, centroid := make([]float64, k), make([][]float64, k)
	for e := range centroid {
		centroid[e] = make([]float64, tokens.Shape[1])
	}
	for _, i := range order {
		e := nearest[i]
		room := n / k
		if e < n%k {
			room++
		}
		if int(size[e]) == room {
			continue
		}
		size[e]++
		for j, x := range tokens.Row(i).Data {
			centroid[e][j] += float64(x)
		}
	}
	like := func(e, key int) float64 {
		row := keys.Row(key)
		sum := 0.0
		for j, x := range row.Data {
			sum += centroid[e][j] * float64(x)
		}
		return sum / math.Sqrt(dot(centroid[e], centroid[e])) / row.Norm()
	}
	best, match := math.Inf(-1), []int{}
	var try func(chosen []int, sum float64)
	try = func(chosen []int, sum float64) {
		if len(chosen) == k && sum > best {
			best, match = sum, slices.Clone(chosen)
		}
		for key := range k {
			if len(chosen) < k && !slices.Contains(chosen, key) {
				try(append(chosen, key), sum+like(len(chosen), key))
			}
		}
	}
	try(nil, 0)
	out, total := make([]float64, k), 0.0
	for e, key := range match {
		out[key] = size[e]
		total += size[e]
	}
	for e := range out {
		out[e] /= total
	}
	return out
}
