package optimaltransport

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// planOf runs Plan on kernels K [N,B,C,M], that is on similarities 1 + eps ln K.
func planOf(t *testing.T, m Entropic, k []float64, shape ...int) []float32 {
	t.Helper()
	sim := tensor.New(shape...)
	for i, v := range k {
		sim.Data[i] = float32(1 + m.Eps*math.Log(v))
	}
	g := graph.New()
	in := g.Input("sim", graph.Float, graph.Static(shape...))
	model, err := graph.Model(graph.Output{Name: "plan", Node: m.Plan(in)})
	goldentest.NoError(t, err)
	return orttest.Run(t, model, "", tensor.Map{"sim": sim})["plan"].Data
}

// One prompt of mass 0.8 and two patches with K = (1, 1/8), after one iteration: u = 1/(2K) = (0.5, 4), v = 0.8/(K·u)
// = 0.8, and the plan K u v = (0.4, 0.4). Bounded, u is (0.5, 1) and v = 0.8/0.625: 0.8 times (4/5, 1/5).
func TestPlanByHand(t *testing.T) {
	for _, eps := range []float64{1, 0.05, 0.01} { // the last in logarithms
		for bounded, want := range map[bool][2]float64{false: {0.4, 0.4}, true: {0.64, 0.16}} {
			got := planOf(t, Entropic{Mass: 0.8, Bounded: bounded, Eps: eps, Iters: 1}, []float64{1, 0.125}, 1, 1, 1, 2)
			for i, v := range got {
				if math.Abs(float64(v)-want[i]) > 1e-4 {
					t.Errorf("eps %v, bounded %v: %v, by hand %v", eps, bounded, got, want)
				}
			}
		}
	}
}

// iterated repeats the iterations of Plan in float64, for kernels K of one image and one class [N][M] each, in the
// order of [B][C]. Each group of pairs ends alone.
func (m Entropic) iterated(kernels [][][]float64, groups [][]int) [][][]float64 {
	n, patches := len(kernels[0]), len(kernels[0][0])
	us, vs := make([][]float64, len(kernels)), make([][]float64, len(kernels))
	for p := range kernels {
		us[p], vs[p] = make([]float64, patches), make([]float64, n)
		for i := range us[p] {
			us[p][i] = 1
		}
		for i := range vs[p] {
			vs[p][i] = 1
		}
	}
	for _, group := range groups {
		for range m.Iters {
			moved, count := 0.0, 0
			for _, p := range group {
				was := append([]float64{}, vs[p]...)
				if m.OnRows {
					was = append([]float64{}, us[p]...)
				}
				for j := range us[p] {
					sum := 0.0
					for i := range n {
						sum += kernels[p][i][j] * vs[p][i]
					}
					us[p][j] = 1 / (float64(patches) * sum)
				}
				for i := range vs[p] {
					sum := 0.0
					for j, u := range us[p] {
						sum += kernels[p][i][j] * u
					}
					vs[p][i] = m.Mass / sum
				}
				now := vs[p]
				if m.OnRows {
					now = us[p]
				}
				for i, x := range now {
					moved += math.Abs(x - was[i])
					count++
				}
			}
			if moved/float64(count) <= m.Threshold {
				break
			}
		}
	}
	for p, k := range kernels {
		for i := range k {
			for j := range k[i] {
				k[i][j] *= us[p][j] * vs[p][i]
			}
		}
	}
	return kernels
}

// Two images with two classes, of which the first pair is uniform and ends at once. The iterations end by pair, by
// image or, as in the code, for all together, by the moves of v or of u.
func TestIterationsEnd(t *testing.T) {
	groups := map[string][][]int{"pair": {{0}, {1}, {2}, {3}}, "image": {{0, 1}, {2, 3}}, "code": {{0, 1, 2, 3}}}
	for stop, group := range groups {
		for _, m := range []Entropic{{Eps: 0.5}, {Eps: 0.5, OnRows: true}, {Eps: 0.03}, {Eps: 0.03, OnRows: true}} {
			m.Mass, m.Stop, m.Iters, m.Threshold = 0.5, stop, 20, 0.02
			r := rand.New(rand.NewPCG(1, 2))
			flat, kernels := make([]float64, 2*4*3), make([][][]float64, 4)
			for p := range kernels {
				kernels[p] = [][]float64{{1, 1, 1}, {1, 1, 1}}
				for i := range 2 {
					for j := range 3 {
						if p > 0 {
							kernels[p][i][j] = math.Exp(float64(p) * r.NormFloat64())
						}
						flat[(i*4+p)*3+j] = kernels[p][i][j]
					}
				}
			}
			got := planOf(t, m, flat, 2, 2, 2, 3)
			for p, plan := range m.iterated(kernels, group) {
				for i := range 2 {
					for j, want := range plan[i] {
						if v := float64(got[(i*4+p)*3+j]); math.Abs(v-want) > 2e-5 {
							t.Errorf("%s: pair %d [%d][%d] is %v, want %v", fmt.Sprintf("%+v", m), p, i, j, v, want)
						}
					}
				}
			}
		}
	}
}
