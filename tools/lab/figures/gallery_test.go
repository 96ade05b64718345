package figures

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// made is a figure with invented numbers.
type made struct {
	name string
	Drawer
}

// invent draws reproducible numbers for the gallery.
type invent struct{ *rand.Rand }

func invented() invent { return invent{rand.New(rand.NewPCG(1, 2))} }

// Names that differ from all real methods and sets.
var methods = []string{"method A", "method B", "method C", "method D", "method E", "method F", "method G",
	"method A with H", "method I", "method J", "method K", "method L"}
var dataSets = []string{"set one", "set two", "set three", "set four", "set five"}
var lengths = []string{"4", "8", "12", "16", "20", "24", "28", "32"}
var backbones = []string{"backbone 1", "backbone 2", "backbone 3", "backbone 4"}

// learning returns a curve that rises to the given height.
func (r invent) learning(label string, rounds int, height float64) Line {
	l := Line{Label: label}
	for t := 1; t <= rounds; t++ {
		l.X = append(l.X, float64(t))
		l.Y = append(l.Y, height-35*math.Exp(-float64(t)/6)+0.6*r.NormFloat64())
		l.Spread = append(l.Spread, 0.8+1.5*math.Exp(-float64(t)/10))
	}
	return l
}

func (r invent) curves(panels, lines, rounds int) []LinePanel {
	var out []LinePanel
	for i := range panels {
		p := LinePanel{Title: dataSets[i%len(dataSets)], X: Axis{Label: "round"}, Y: Axis{Label: "accuracy (%)",
			Bounds: [2]float64{0, 100}}}
		for j := range lines {
			p.Lines = append(p.Lines, r.learning(methods[j], rounds, 78+1.7*float64(j)+r.NormFloat64()))
		}
		out = append(out, p)
	}
	return out
}

func (r invent) sweep(label string, x []float64, top, best float64) Line {
	l := Line{Label: label, X: x}
	for _, v := range x {
		l.Y = append(l.Y, top-1.2*math.Pow(math.Log10(v/best), 2)+0.2*r.NormFloat64())
		l.Spread = append(l.Spread, 0.3+0.5*r.Float64())
	}
	return l
}

func (r invent) heat(panels int) []HeatPanel {
	var out []HeatPanel
	for k := range panels {
		p := HeatPanel{Title: "Domain 1: " + lengths[k%8], Frames: []Cell{{k % 8, k % 8}}}
		for i := range 8 {
			row := make([]float64, 8)
			for j := range row {
				row[j] = 94 + math.Sin(float64(i+j)/2) - 0.3*math.Abs(float64(j-k)) + 0.3*r.NormFloat64()
			}
			p.Values = append(p.Values, row)
		}
		out = append(out, p)
	}
	return out
}

func (r invent) table(rows, cols int) HeatPanel {
	var p HeatPanel
	for range rows {
		row := make([]float64, cols)
		for j := range row {
			row[j] = 60 + 40*r.Float64()
		}
		p.Values = append(p.Values, row)
	}
	return p
}

func (r invent) boxes(panel int, groups []string) []Sample {
	var out []Sample
	for i, name := range lengths {
		s := Sample{Label: name, Group: groups[(panel/2)%len(groups)]}
		for range 64 {
			s.Values = append(s.Values, 93+2*math.Sin(float64(i+panel))+1.1*r.NormFloat64()-3*math.Pow(r.Float64(), 12))
		}
		out = append(out, s)
	}
	return out
}

func (r invent) cube() []Point3 {
	var out []Point3
	for x := 4.0; x <= 32; x += 4 {
		for y := 4.0; y <= 32; y += 4 {
			for z := 4.0; z <= 32; z += 4 {
				out = append(out, Point3{x, y, z, 93 + math.Sin(x/6) + math.Cos(y/9) - z/40 + 0.3*r.NormFloat64()})
			}
		}
	}
	return out
}

func (r invent) clients(n int, level float64) StripGroup {
	g := StripGroup{}
	for range n {
		g.Values = append(g.Values, level+2.5*r.NormFloat64())
	}
	return g
}

func (r invent) groups(n int) []StripGroup {
	var out []StripGroup
	for i, b := range backbones {
		g := r.clients(n/4, []float64{84, 86, 90, 94}[i])
		g.Label = b
		out = append(out, g)
	}
	return out
}

// clusters returns rows around centres, with the index of each row's centre.
func (r invent) clusters(n, centres, width int, apart float64) (rows [][]float64, labels []int) {
	middle := make([][]float64, centres)
	for c := range middle {
		for range width {
			middle[c] = append(middle[c], apart*r.NormFloat64())
		}
	}
	for i := range n {
		row := make([]float64, width)
		for j := range row {
			row[j] = middle[i%centres][j] + r.NormFloat64()
		}
		rows, labels = append(rows, row), append(labels, i%centres)
	}
	return rows, labels
}

func (r invent) prompts(title string, n int, apart float64) TSNEPanel {
	rows, labels := r.clusters(n, 4, 32, apart)
	p := TSNEPanel{Title: title, Rows: rows}
	for _, l := range labels {
		p.Groups = append(p.Groups, backbones[l])
	}
	return p
}

func (r invent) features(n, classes int) PCAPanel {
	images, labels := r.clusters(n, classes, 24, 2)
	before, _ := r.clusters(classes, classes, 24, 2)
	p := PCAPanel{Images: images, Labels: labels, Before: before}
	sums := make([][]float64, classes)
	for i, row := range images {
		if sums[labels[i]] == nil {
			sums[labels[i]] = make([]float64, 24)
		}
		for j, v := range row {
			sums[labels[i]][j] += v / float64(n/classes)
		}
	}
	p.After = sums
	return p
}

func (r invent) counts(clients, classes, each int) [][]int {
	out := make([][]int, clients)
	for k := range out {
		out[k] = make([]int, classes)
		for c := range out[k] {
			if v := math.Pow(r.Float64(), 9); v > 0.02 {
				out[k][c] = int(float64(each) * v)
			}
		}
	}
	return out
}

func (r invent) costs(n int) []CostRow {
	var out []CostRow
	for i := range n {
		out = append(out, CostRow{methods[i], math.Pow(10, 4+3*r.Float64()), 2 + 40*r.Float64()})
	}
	out[n-1].Bytes = 0
	return out
}

func (r invent) versus(n int) Significance {
	s := Significance{Title: "Made-up numbers, not a test of anything", Value: "difference of accuracy (points)",
		Names: methods[:n]}
	for i := range n {
		d, p := make([]float64, n), make([]float64, n)
		for j := range n {
			d[j] = 1.3 * float64(i-j)
			p[j] = math.Exp(-2.2 * math.Abs(float64(i-j)))
		}
		s.Difference, s.P = append(s.Difference, d), append(s.P, p)
	}
	return s
}

func (r invent) ranked(names []string, difference float64) Ranks {
	f := Ranks{Title: "Made-up numbers, not a test of anything", Names: names, Difference: difference,
		Note: "Mean ranks over six tasks; a bar joins methods that do not differ."}
	for i := range names {
		f.Mean = append(f.Mean, 1+0.05*float64(len(names))+0.8*float64(i)+0.1*r.Float64())
	}
	return f
}

// named returns numbered names.
func named(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, prefix+" "+strconv.Itoa(i+1))
	}
	return out
}

// gallery returns figures of every kind with invented numbers, with one panel and with many.
func gallery() []made {
	r := invented()
	decades := []float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100}
	shots := []float64{1, 2, 4, 8, 16}
	var shotPanels, skew []LinePanel
	for _, d := range dataSets {
		p := LinePanel{Title: d, X: Axis{Label: "shots", Log: false}, Y: Axis{Label: "accuracy (%)",
			Bounds: [2]float64{0, 100}}}
		for j, m := range methods[:4] {
			p.Lines = append(p.Lines, r.sweep(m, shots, 88+2*float64(j), 16))
		}
		shotPanels = append(shotPanels, p)
	}
	for i, x := range []struct {
		label string
		names []string
	}{{"clients", []string{"5", "10", "30", "50"}}, {"participation", []string{"20 %", "40 %", "60 %", "100 %"}},
		{"rounds", []string{"5", "10", "20", "50"}}} {
		for _, d := range dataSets[:4] {
			p := LinePanel{Title: d, X: Axis{Label: x.label, Names: x.names}, Y: Axis{Label: "accuracy (%)"}}
			for j, m := range methods[:5] {
				l := Line{Label: m}
				for k := range x.names {
					l.X, l.Y = append(l.X, float64(k)), append(l.Y, 80+float64(3*j)+float64(i*k)+r.NormFloat64())
				}
				p.Lines = append(p.Lines, l)
			}
			skew = append(skew, p)
		}
	}
	hole := r.heat(1)
	hole[0].Values[2][3], hole[0].Values[5][6] = math.NaN(), math.NaN()
	wide := r.curves(1, 3, 30)
	wide[0].Lines[1].Label = "a method with a rather long name that somebody thought explains everything (ours, with " +
		"an option or two)"
	wide[0].Title = "a title of a panel that is longer than the panel is wide, and then some, until it takes a third " +
		"line of its own"
	var boxPanels []BoxPanel
	for i := range 6 {
		boxPanels = append(boxPanels, BoxPanel{Title: "Client " + strconv.Itoa(i+1), X: "prompt length",
			Boxes: r.boxes(i, []string{"domain 1", "domain 2", "domain 3"})})
	}
	domains := []string{"art_painting", "cartoon", "photo", "sketch"}
	many := BoxPanel{X: "method"}
	for _, m := range methods {
		many.Boxes = append(many.Boxes, Sample{m, "", r.clients(40, 85).Values})
	}
	lds := BubblePanel{Title: "label and domain skew", Counts: r.counts(20, 7, 120)}
	for k := range 20 {
		lds.Domains = append(lds.Domains, domains[k%4])
	}
	strips := []StripPanel{{Groups: r.groups(100)}}
	three := []StripPanel{{"method A", r.groups(100)}, {"method B", r.groups(100)}, {"method C", r.groups(100)}}
	lots := LinePanel{Title: "(a) warm-up", X: Axis{Label: "T₀"}, Y: Axis{Label: "accuracy (%)"},
		Lines: []Line{{Label: "method F", X: []float64{0, 10, 20, 30, 40, 60, 80, 100}, Y: []float64{88.1, 89, 89.9,
			89.8, 89.4, 89.0, 88.8, 88.5}}}}
	return []made{
		{"curves-1", Curves{Title: "Made-up numbers: accuracy of five methods", Panels: r.curves(1, 5, 50)}},
		{"curves-12", Curves{Panels: r.curves(1, 12, 50)}},
		{"curves-5x4", Curves{Title: "Made-up numbers: convergence on five sets", Panels: r.curves(5, 4, 50)}},
		{"curves-long", Curves{Title: "Long labels are cut, and long titles take two lines before they are cut as " +
			"well, so that nothing overlaps anything", Panels: wide}},
		{"shots-5", Sensitivity{Panels: shotPanels}},
		{"shots-1", Sensitivity{Panels: shotPanels[:1]}},
		{"sensitivity-3", Sensitivity{Title: "Made-up numbers: sensitivity of a method",
			Reference: &Reference{"method A", 86.5},
			Panels: []LinePanel{lots,
				{Title: "(b) adversarial weight", X: Axis{Label: "λₐ", Log: true}, Y: Axis{Label: "accuracy (%)"},
					Lines: []Line{r.sweep("method F", decades, 90, 0.1)}},
				{Title: "(c) proximity weight", X: Axis{Label: "λᵣ", Log: true}, Y: Axis{Label: "accuracy (%)"},
					Lines: []Line{r.sweep("method F", decades, 90, 0.01)}},
			}}},
		{"sensitivity-12", Sensitivity{Panels: skew}},
		{"heatmap-8", HeatMap{Title: "Made-up numbers: accuracy of all combinations of prompt lengths",
			X: "length in Domain 2", Y: "length in Domain 3", ColumnNames: lengths, RowNames: lengths,
			Value: "accuracy (%)", Panels: r.heat(8)}},
		{"heatmap-8-red", HeatMap{X: "length in Domain 2", Y: "length in Domain 3", ColumnNames: lengths,
			RowNames: lengths, Value: "accuracy (%)", differences: true, Panels: r.heat(8)}},
		{"heatmap-1", HeatMap{X: "length in Domain 2", Y: "length in Domain 3", ColumnNames: lengths, RowNames: lengths,
			Value: "accuracy (%)", Panels: hole}},
		{"heatmap-names", HeatMap{X: "data set", Y: "method", ColumnNames: dataSets, RowNames: methods[:8],
			Value: "accuracy (%)", Panels: []HeatPanel{r.table(8, 5)}}},
		{"box-6", Box{Title: "Made-up numbers: accuracy of clients by prompt length", Y: Axis{Label: "accuracy (%)",
			Bounds: [2]float64{0, 100}}, Panels: boxPanels}},
		{"box-1", Box{Y: Axis{Label: "accuracy (%)", Bounds: [2]float64{0, 100}}, Panels: []BoxPanel{many}}},
		{"scatter3-1", Scatter3{Title: "Made-up numbers: 512 combinations", Value: "accuracy (%)",
			Panels: []Scatter3Panel{{"", "length in Domain 1", "length in Domain 2", "length in Domain 3", r.cube()}}}},
		{"scatter3-2", Scatter3{Value: "accuracy (%)", Panels: []Scatter3Panel{{"set one", "domain 1",
			"domain 2", "domain 3", r.cube()}, {"set two", "domain 1", "domain 2", "domain 3", r.cube()}}}},
		{"strips-1", Strips{Title: "Made-up numbers: accuracy of 100 clients by backbone",
			Y: Axis{Label: "accuracy (%)", Bounds: [2]float64{0, 100}}, Panels: strips}},
		{"strips-3", Strips{Y: Axis{Label: "accuracy (%)"}, Panels: three}},
		{"strips-1000", Strips{Y: Axis{Label: "accuracy (%)"}, Panels: []StripPanel{{"", r.groups(1000)}}}},
		{"tsne-1", TSNE{Title: "Made-up numbers: prompts of 100 clients",
			Panels: []TSNEPanel{r.prompts("", 100, 1)}}},
		{"tsne-3", TSNE{Title: "Made-up numbers: prompts of 100 clients",
			Panels: []TSNEPanel{r.prompts("method A, one backbone", 100, 0), r.prompts("method A, four backbones", 100,
				1), r.prompts("method B, four backbones", 100, 0.3)}}},
		{"pca-1", PCA{Title: "Made-up numbers: image features, text before and after", Classes: named("class", 7),
			Panels: []PCAPanel{r.features(280, 7)}}},
		{"pca-classes", PCA{Title: "Made-up numbers: a panel for each class", PerClass: true, Classes: named("Class",
			6), Panels: []PCAPanel{r.features(300, 6)}}},
		{"bubbles-10", Bubbles{Title: "Made-up numbers: β = 0.1", Panels: []BubblePanel{{Counts: r.counts(10, 10,
			5000)}}}},
		{"bubbles-100", Bubbles{Panels: []BubblePanel{{Counts: r.counts(100, 100, 500)}}}},
		{"bubbles-1000", Bubbles{Panels: []BubblePanel{{Counts: r.counts(1000, 200, 50)}}}},
		{"bubbles-domains", Bubbles{Title: "Made-up numbers", Classes: []string{"dog", "elephant", "giraffe", "guitar",
			"horse", "house", "person"}, Panels: []BubblePanel{lds}}},
		{"bubbles-3", Bubbles{Panels: []BubblePanel{{"β = 0.05", r.counts(10, 10, 5000), nil},
			{"β = 0.3", r.counts(10, 10, 5000), nil}, {"β = 1", r.counts(10, 10, 4000), nil}}}},
		{"cost", Cost{Title: "Made-up numbers: cost of eight methods", Bytes: "per client and round",
			Seconds: "per round", Rows: r.costs(8)}},
		{"significance-6", r.versus(6)},
		{"significance-12", r.versus(12)},
		{"ranks-12", r.ranked(methods[:12], 4)},
		{"ranks-52", r.ranked(named("a method of some name", 52), 30)},
	}
}

// TestGallery draws every kind. It saves the images if PROMPTFED_TEST_GALLERY names a folder. Those of docs/figures.md
// are curves-5x4, sensitivity-3, heatmap-8, scatter3-1, box-6, strips-1, tsne-3, pca-1, pca-classes, bubbles-domains,
// cost, significance-6 and ranks-12.
func TestGallery(t *testing.T) {
	dir := os.Getenv("PROMPTFED_TEST_GALLERY")
	for _, m := range gallery() {
		t.Run(m.name, func(t *testing.T) {
			f := checked(t, m.Drawer, 2)
			if dir == "" {
				return
			}
			if err := Save(f, dir, m.name); err != nil {
				t.Error(err)
			}
		})
	}
}
