package methods

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// NLPrompt tells clean labels from wrong ones by optimal transport, and fits the wrong ones by a loss that they pull
// little at. Before each pass over a client's data its N images are sent to the C classes at the cost -log p, p being
// the softmax of their class scores, each with mass 1/N and each class with its own mass, under entropic regularisation
// eps. An image is clean whose label is the class that gets most of its mass. Clean images come first in the pass and
// have cross entropy; the others, with their labels, the mean absolute error 1-p.
//
// Pan et al., NLPrompt: Noise-Label Prompt Learning for Vision-Language Models, CVPR 2025, eq. 5-8. Where paper and
// code (qunovo/NLPrompt) differ:
//   - score: the paper's similarity is log p; the code takes the logarithm of a softmax of p, whose costs lie within 1
//     of each other;
//   - the code leaves an incomplete last batch out of the transport; here no image is left out;
//   - the code's batches are all clean or all not; here one batch in between may hold both, each with its own loss.
//
// Classes have the same mass in the paper, which a client with few of them cannot have: masses (ours) may also be those
// of its labels, or the same for the classes that it has. The budget, the share of images that may be clean, is the
// default of the code: all.
type NLPrompt struct {
	method.Method
	Eps    float64 `config:"eps" help:"weight of the entropy in the optimal transport"`
	Iters  int     `config:"iters" help:"largest number of Sinkhorn iterations"`
	Score  string  `config:"score" help:"scores of the transport: paper (log p) or code (log softmax p)"`
	Masses string  `config:"masses" help:"class masses: uniform, labels (by frequency) or owned (client's classes)"`
}

var nlPromptDef = Def{Name: "nlprompt", Title: "NLPrompt", New: newNLPrompt,
	Paper: "Pan et al., NLPrompt: Noise-Label Prompt Learning for Vision-Language Models, CVPR 2025"}

func newNLPrompt() Layer { return &NLPrompt{Eps: 0.01, Iters: 1000, Score: "paper", Masses: "uniform"} }

func (m *NLPrompt) Build(inner method.Method) (method.Method, error) {
	m.Method = inner
	err := Join(Within("eps", m.Eps, 1e-6, maxWeight), Within("iters", m.Iters, 1, maxSteps),
		OneOf("score", m.Score, "paper", "code"), OneOf("masses", m.Masses, "uniform", "labels", "owned"),
		mustLearn(inner, "changes the loss"), learnsScores(inner))
	return *m, fits(*m, inner, err)
}

func (NLPrompt) Properties() method.Properties { return method.Properties{Mean: method.AsInside} }

// cleanInput [B] is 1 for clean images; draw/clean is an input of GGTPC.
const cleanInput = "draw/trusted"

func (m NLPrompt) Loss(s *method.Scope, logits graph.Node) graph.Node {
	clean := s.Graph().Input(cleanInput, graph.Float, graph.Shape{graph.Sym("B")})
	return fitted(m.Method, s, logits, func(logp graph.Node) graph.Node {
		wrong := generalised(logp, 1)
		return wrong.Add(clean.Mul(logp.Neg().Sub(wrong)))
	})
}

func (m NLPrompt) Begin(l *method.Local) error {
	if err := m.Method.Begin(l); err != nil {
		return err
	}
	l.Data = &divided{Data: l.Data, m: m, l: l}
	return nil
}

// divided is a client's data with what is clean of it.
type divided struct {
	method.Data
	m     NLPrompt
	l     *method.Local
	clean []bool
	pass  int   // that clean is of
	busy  bool  // dividing, for which batches get no clean input
	err   error // for Batch
}

// divide finds what is clean in the pass that runs, once: a layer outside may have an order of its own and ask for
// batches alone.
func (d *divided) divide() {
	if d.clean != nil && d.pass == d.l.Epoch {
		return
	}
	d.busy = true
	defer func() { d.busy = false }()
	if d.clean, d.err = d.m.divide(d.l, d.Labels()); d.err != nil {
		d.clean = make([]bool, d.Len())
	}
	d.pass = d.l.Epoch
}

// Order is that of the layers inside, clean images first.
func (d *divided) Order(r *rand.Rand) []int {
	d.divide()
	order := d.Data.Order(r)
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case d.clean[a] == d.clean[b]:
			return 0
		case d.clean[a]:
			return -1
		}
		return 1
	})
	return order
}

func (d *divided) Batch(rows []int, r *rand.Rand, also ...string) (tensor.Map, error) {
	if d.busy {
		return d.Data.Batch(rows, r, also...)
	}
	if d.divide(); d.err != nil {
		return nil, d.err
	}
	batch, err := d.Data.Batch(rows, r, also...)
	if err != nil {
		return nil, err
	}
	clean := tensor.New(len(rows))
	for i, row := range rows {
		if d.clean[row] {
			clean.Data[i] = 1
		}
	}
	batch[cleanInput] = clean
	return batch, nil
}

// divide tells which images of a client are clean, with the current parameters.
func (m NLPrompt) divide(l *method.Local, labels []int64) ([]bool, error) {
	scores, err := l.Eval(func(s *method.Scope) graph.Node {
		logits := m.Method.Logits(s)
		if m.Score == "code" {
			return logits.Softmax(-1).LogSoftmax(-1)
		}
		return logits.LogSoftmax(-1)
	})
	if err == nil && scores.Shape[0] != len(labels) {
		err = fmt.Errorf("nlprompt: a wrapper outside it changes the client's %d examples; list nlprompt after that "+
			"wrapper", len(labels))
	}
	if err != nil {
		return nil, err
	}
	plan := sinkhorn(scores, m.masses(labels, scores.Shape[1]), m.Eps, m.Iters)
	out := make([]bool, len(labels))
	for i, row := range plan {
		best := 0
		for c, v := range row {
			if v > row[best] {
				best = c
			}
		}
		out[i] = int64(best) == labels[i]
	}
	return out, nil
}

// masses are those of the classes; their sum is 1.
func (m NLPrompt) masses(labels []int64, classes int) []float64 {
	out := make([]float64, classes)
	for c := range out {
		if m.Masses == "uniform" {
			out[c] = 1
		}
	}
	for _, y := range labels {
		switch m.Masses {
		case "labels":
			out[y]++
		case "owned":
			out[y] = 1
		}
	}
	sum := 0.0
	for _, v := range out {
		sum += v
	}
	for c := range out {
		out[c] /= sum
	}
	return out
}

// sinkhorn gives the plan [N][C] between N rows of mass 1/N and columns of the given masses that maximises
// Σ plan · (score - eps log plan), by iterations until no row's mass was off by more than a millionth of it. Columns
// have their masses exactly.
//
// Each fiftieth iteration is one of logarithms, whatever the range; those between multiply the plan that it left.
func sinkhorn(scores *tensor.Tensor, masses []float64, eps float64, iters int) [][]float64 {
	n, classes := scores.Shape[0], scores.Shape[1]
	k := kernel{u: make([]float64, n), v: make([]float64, classes), masses: masses}
	for i := range n {
		row := make([]float64, classes)
		for c, x := range scores.Row(i).Data {
			row[c] = float64(x) / eps
		}
		k.scores = append(k.scores, row)
	}
	for done := 0; done < iters; {
		off := k.logarithms()
		done++
		if off > 1e-6 {
			steps := 0
			steps, off = k.multiply(min(49, iters-done))
			done += steps
		}
		if off <= 1e-6 {
			break
		}
	}
	return k.plan()
}

// kernel holds the plan e^(scores + u + v).
type kernel struct {
	scores       [][]float64
	u, v, masses []float64
}

func (k kernel) plan() [][]float64 {
	out := make([][]float64, len(k.u))
	for i, row := range k.scores {
		out[i] = make([]float64, len(row))
		for c, x := range row {
			out[i][c] = math.Exp(x + k.u[i] + k.v[c])
		}
	}
	return out
}

// logarithms is one iteration, and gives how far a row was off.
func (k kernel) logarithms() (off float64) {
	column := make([]float64, len(k.u))
	for i, row := range k.scores {
		sum := slices.Clone(row)
		for c := range sum {
			sum[c] += k.v[c]
		}
		now := -math.Log(float64(len(k.u))) - floats.LogSumExp(sum)
		off = max(off, math.Abs(math.Expm1(k.u[i]-now)))
		k.u[i] = now
	}
	for c := range k.v {
		for i, row := range k.scores {
			column[i] = row[c] + k.u[i]
		}
		k.v[c] = math.Log(k.masses[c]) - floats.LogSumExp(column)
	}
	return off
}

// multiply does at most so many iterations, as far as numbers go or until a row is off by less than a millionth, and
// gives how many it did and how far a row was off.
func (k kernel) multiply(most int) (steps int, off float64) {
	plan := k.plan()
	a, b := slices.Repeat([]float64{1}, len(k.u)), slices.Repeat([]float64{1}, len(k.v))
	for off = math.Inf(1); steps < most && off > 1e-6; steps++ {
		now := 0.0
		nextA, sums := make([]float64, len(a)), make([]float64, len(b))
		for i, row := range plan {
			sum := 0.0
			for c, x := range row {
				sum += x * b[c]
			}
			nextA[i] = 1 / (sum * float64(len(a)))
			now = max(now, math.Abs(a[i]/nextA[i]-1))
			for c, x := range row {
				sums[c] += x * nextA[i]
			}
		}
		nextB := make([]float64, len(b))
		for c, sum := range sums {
			if k.masses[c] > 0 {
				nextB[c] = k.masses[c] / sum
			}
		}
		if !ordinary(nextA) || !ordinary(nextB) {
			break
		}
		a, b, off = nextA, nextB, now
	}
	for i, x := range a {
		k.u[i] += math.Log(x)
	}
	for c, x := range b {
		if k.masses[c] > 0 {
			k.v[c] += math.Log(x)
		}
	}
	return steps, off
}

// ordinary tells whether numbers have products with those of a plan.
func ordinary(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return v != 0 && !(v > 1e-130 && v < 1e130) })
}
