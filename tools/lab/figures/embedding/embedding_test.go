package embedding

import (
	"math"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
)

// golden is the output of tools/golden/figures.py with NumPy, SciPy and scikit-learn.
type golden struct {
	TSNE struct {
		Rows  [][]float64
		Y     [][2]float64
		Cases []struct {
			Perplexity, Divergence float64
			P                      [][]float64
			Gradient               [][2]float64
		}
		Clusters struct {
			Rows                   [][]float64
			Perplexity, Divergence float64
		}
	}
	PCA []struct {
		Rows, Extra, Axes [][]float64
		Mean, Explained   []float64
		Projected         [][2]float64
	}
}

func read(t *testing.T) golden {
	t.Helper()
	var g golden
	goldentest.ReadJSON(t, "testdata/embedding.json", &g)
	if len(g.TSNE.Cases) == 0 || len(g.PCA) == 0 {
		t.Fatal("no golden cases")
	}
	return g
}

// divergence returns KL(P || Q) in nats (van der Maaten and Hinton 2008, Equation 2 with Q of Equation 4).
func divergence(p []float64, y [][2]float64) (kl float64) {
	total := 0.0
	for i := range y {
		for j := range i {
			total += 2 / (1 + squared(y[i], y[j]))
		}
	}
	for i := range y {
		for j := range i {
			if v := p[i*len(y)+j]; v > 0 {
				kl += 2 * v * math.Log(v*(1+squared(y[i], y[j]))*total)
			}
		}
	}
	return kl
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// Rows of P have the perplexity that SciPy's root finder reaches. The divergence equals NumPy's, and the gradient
// equals NumPy's complex-step derivative.
func TestAffinitiesAndGradient(t *testing.T) {
	g := read(t).TSNE
	n := len(g.Rows)
	for _, c := range g.Cases {
		p := affinities(squaredDistances(g.Rows), n, c.Perplexity)
		for i := range n {
			for j := range n {
				if !near(p[i*n+j], c.P[i][j], 1e-11) {
					t.Fatalf("perplexity %g: P[%d,%d] = %g, not %g", c.Perplexity, i, j, p[i*n+j], c.P[i][j])
				}
			}
		}
		if got := divergence(p, g.Y); !near(got, c.Divergence, 1e-10) {
			t.Errorf("divergence %g, not %g", got, c.Divergence)
		}
		grad := make([][2]float64, n)
		gradient(p, g.Y, 1, grad)
		for i := range grad {
			for k := range 2 {
				if !near(grad[i][k], c.Gradient[i][k], 1e-10) {
					t.Errorf("gradient[%d][%d] = %g, not %g", i, k, grad[i][k], c.Gradient[i][k])
				}
			}
		}
	}
}

// Three clusters separate, the divergence falls, and it ends where scikit-learn's exact t-SNE ends.
func TestTSNEOfClusters(t *testing.T) {
	g := read(t).TSNE.Clusters
	points, err := tsne(g.Rows, g.Perplexity, iterations, 3)
	if err != nil {
		t.Fatal(err)
	}
	p := affinities(squaredDistances(g.Rows), len(g.Rows), g.Perplexity)
	if last := divergence(p, points); last > 1.02*g.Divergence || last < 0.9*g.Divergence {
		t.Errorf("divergence %g at the end, scikit-learn's %g", last, g.Divergence)
	}
	before := math.Inf(1)
	for _, n := range []int{0, 600, 700, 800, 900} { // after the exaggeration
		points, err := tsne(g.Rows, g.Perplexity, n, 3)
		if d := divergence(p, points); err != nil || d > before+1e-3 {
			t.Errorf("the divergence grows from %g to %g in %d iterations (%v)", before, d, n, err)
		} else {
			before = d
		}
	}
	within, across := 0.0, math.Inf(1) // row i belongs to cluster i % 3
	for i := range points {
		for j := range i {
			if e := math.Sqrt(squared(points[i], points[j])); i%3 == j%3 {
				within = max(within, e)
			} else {
				across = min(across, e)
			}
		}
	}
	if across < within/2 {
		t.Errorf("clusters are %g apart and up to %g wide", across, within)
	}
	again, err := tsne(g.Rows, g.Perplexity, iterations, 3)
	if err != nil || !slices.Equal(again, points) {
		t.Errorf("a second map differs (%v)", err)
	}
}

// Few rows, equal rows and rows in a line have finite places. Other rows are an error.
func TestTSNEOfOddRows(t *testing.T) {
	line := [][]float64{}
	for i := range 9 {
		line = append(line, []float64{float64(i), 0})
	}
	cases := map[string][][]float64{
		"one": {{1, 2}}, "two": {{1, 2}, {3, 4}}, "three": {{1, 2}, {3, 4}, {0, 1}}, "four": {{1, 2}, {3, 4}, {0, 1},
			{8, 8}},
		"equal": {{1}, {1}, {1}, {1}, {1}}, "line": line, "twins": {{0}, {0}, {0}, {5}, {5}, {5}}, "large": {{1e60},
			{-1e60}, {2e60}, {0}, {1}},
	}
	for name, rows := range cases {
		points, err := tsne(rows, perplexity, 100, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, p := range points {
			if math.IsNaN(p[0]+p[1]) || math.IsInf(p[0]+p[1], 0) {
				t.Errorf("%s: row %d lies at %v", name, i, p)
			}
		}
	}
	for name, rows := range map[string][][]float64{"none": nil, "empty": {{}}, "ragged": {{1, 2}, {1}},
		"NaN": {{1}, {math.NaN()}}} {
		if _, err := TSNE(rows); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The basis equals NumPy's singular value decomposition, with the largest entry of each axis positive, for many rows
// and for fewer rows than columns.
func TestPrincipal(t *testing.T) {
	for _, c := range read(t).PCA {
		b, err := PrincipalComponents(c.Rows)
		if err != nil {
			t.Fatal(err)
		}
		for j := range c.Mean {
			if !near(b.Mean[j], c.Mean[j], 1e-12) {
				t.Errorf("mean[%d] = %g, not %g", j, b.Mean[j], c.Mean[j])
			}
		}
		for k := range 2 {
			if !near(b.Explained[k], c.Explained[k], 1e-12) {
				t.Errorf("share %d = %g, not %g", k, b.Explained[k], c.Explained[k])
			}
			for j := range c.Axes[k] {
				if !near(b.Axes[k][j], c.Axes[k][j], 1e-10) {
					t.Errorf("axis %d [%d] = %g, not %g", k, j, b.Axes[k][j], c.Axes[k][j])
				}
			}
		}
		for i, row := range c.Extra {
			got, err := b.Project(row)
			if err != nil || !near(got[0], c.Projected[i][0], 1e-10) || !near(got[1], c.Projected[i][1], 1e-10) {
				t.Errorf("row %d lies at %v, not %v (%v)", i, got, c.Projected[i], err)
			}
		}
	}
}

func TestPrincipalOfOddRows(t *testing.T) {
	for name, rows := range map[string][][]float64{"equal": {{1, 2}, {1, 2}}, "narrow": {{1}, {2}, {4}}} {
		b, err := PrincipalComponents(rows)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p, err := b.Project(rows[0]); err != nil || math.IsNaN(p[0]+p[1]) {
			t.Errorf("%s: %v %v", name, p, err)
		}
		if _, err := b.Project([]float64{1, 2, 3}); err == nil {
			t.Errorf("%s: a row of another width is no error", name)
		}
	}
	if _, err := PrincipalComponents([][]float64{{1, 2}}); err == nil {
		t.Error("one row is no error")
	}
}
