package robust

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/optimaltransport"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// NLPrompt separates clean labels from wrong ones by optimal transport, and trains wrong ones with a loss on which they
// have little influence. Before each pass over a client's data its N images are sent to the C classes at the cost -log
// p, p being the softmax of their class scores, each with mass 1/N and each class with its own mass, under entropic
// regularisation eps. An image is clean whose label is the class that gets most of its mass. Clean images come first in
// the pass and have cross entropy; the others, with their labels, the mean absolute error 1-p.
//
// Pan et al., NLPrompt: Noise-Label Prompt Learning for Vision-Language Models, CVPR 2025, eq. 5-8. Where paper and
// code (qunovo/NLPrompt) differ:
//   - the similarity is the paper's log p; the code takes the logarithm of a softmax of p, whose costs lie within 1 of
//     each other;
//   - the code leaves an incomplete last batch out of the transport; here no image is left out;
//   - the code's batches are all clean or all not; here one batch in between may hold both, each with its own loss.
//
// Classes have the same mass in the paper, which a client with few of them cannot have: masses (ours) may also be those
// of its labels, or the same for the classes that it has. The budget, the share of images that may be clean, is the
// default of the code: all.
type NLPrompt struct {
	method.Method
	method.MeanInside // the division into clean and wrong labels stays on the client

	Eps    float64 `config:"eps" in:"1e-6.." help:"weight of the entropy in the optimal transport"`
	Iters  int     `config:"iters" in:"1..steps" help:"largest number of Sinkhorn iterations"`
	Masses string  `config:"masses" in:"uniform|labels|owned" help:"class masses"`
}

var nlPromptDef = layer.Def{Name: "nlprompt", Title: "NLPrompt",
	Paper:   "Pan et al., NLPrompt: Noise-Label Prompt Learning for Vision-Language Models, CVPR 2025",
	Suits:   layer.RequireLearned("changes the loss"),
	Default: NLPrompt{Eps: 0.01, Iters: 1000, Masses: "uniform"}}

// cleanInput [B] is 1 for clean images; draw/clean is an input of GGTPC.
var cleanInput = method.Input{Kind: method.DrawInput, Name: "trusted"}

// Loss has in place of every cross entropy of the layers inside that of clean examples and 1-p of the others, in one
// mean over the batch.
func (m NLPrompt) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	clean := scope.Input(cleanInput, graph.Float, graph.Rows("B"))
	return fitted(m.Method, scope, logits, func(logp graph.Node) graph.Node {
		wrong := generalised(logp, 1)
		return wrong.Add(clean.Mul(logp.Neg().Sub(wrong)))
	})
}

// Begin wraps the data, as the layers inside left them, so that every pass begins with a new division and clean images
// come first.
func (m NLPrompt) Begin(local *method.Local) error {
	if err := m.Method.Begin(local); err != nil {
		return err
	}
	local.Data = &divided{Data: local.Data, method: m, local: local}
	return nil
}

// divided is a client's data, divided into clean and other images.
type divided struct {
	method.Data
	method NLPrompt
	local  *method.Local
	clean  []bool
	pass   int   // that clean is of
	busy   bool  // dividing, for which batches get no clean input
	err    error // for Batch
}

// divide finds the clean images once in each pass. Batch calls it too: a layer outside may use an order of its own.
func (d *divided) divide() {
	if d.clean != nil && d.pass == d.local.Epoch {
		return
	}

	d.busy = true
	defer func() { d.busy = false }()
	if d.clean, d.err = d.method.divide(d.local, d.Labels()); d.err != nil {
		d.clean = make([]bool, d.Len())
	}

	d.pass = d.local.Epoch
}

// Order returns the order of the layers inside with clean images first.
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

	batch[cleanInput.String()] = clean
	return batch, nil
}

// divide returns which images of a client are clean by the current parameters.
func (m NLPrompt) divide(local *method.Local, labels []int64) ([]bool, error) {
	scores, err := local.Eval(func(scope *method.Scope) graph.Node {
		return m.Method.Logits(scope).LogSoftmax(-1)
	})
	if err == nil && scores.Shape[0] != len(labels) {
		err = fmt.Errorf("nlprompt: a wrapper outside it changes the client's %d examples; list nlprompt after that "+
			"wrapper", len(labels))
	}

	if err != nil {
		return nil, err
	}

	plan := optimaltransport.Sinkhorn(scores, m.masses(labels, scores.Shape[1]), m.Eps, m.Iters)
	out := make([]bool, len(labels))
	for i, row := range plan {
		out[i] = int64(slices.Index(row, slices.Max(row))) == labels[i]
	}

	return out, nil
}

// masses returns the mass of each class; their sum is 1.
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
