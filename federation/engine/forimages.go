package engine

import (
	"context"
	"fmt"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// defaultMemory bounds Training.Memory where nothing is said.
const defaultMemory = 4 << 30

// forImages tells how many rows of a batch a graph with text prompts for each image may run on at a time, within a bound
// on memory, and what one takes; 0 and 0 for a graph without.
func forImages(b Backbone, classes []string, bound int, roots ...graph.Node) (rows, bytes int, err error) {
	for _, op := range graph.Reachable(roots...) {
		if what, _ := op.Placeholder(); what != method.PlaceholderText {
			continue
		}
		if p := method.PromptOf(op); p.Ctx.OK() && p.Ctx.Rank() == 3 {
			n, err := b.StepBytesForImage(classes, p.Ctx.Dim(1))
			if err != nil {
				return 0, 0, err
			}
			bytes += n
		}
	}
	if bytes == 0 {
		return 0, 0, nil
	}
	if bound == 0 {
		bound = defaultMemory
	}
	if rows = bound / bytes; rows == 0 {
		return 0, 0, fmt.Errorf("a text prompt for each image: %d classes take about %.1f GiB for one image, "+
			"train.memory_gb allows %.1f; raise it, or use fewer classes", len(classes), gib(bytes), gib(bound))
	}
	return rows, bytes, nil
}

func gib(bytes int) float64 { return float64(bytes) / (1 << 30) }

// ForImages says, before anything runs, how many images with text prompts of their own a training step computes at a
// time and what memory that takes; empty for a method without.
func (e *Experiment) ForImages(b Backbone) (string, error) {
	t := b.Task()
	t.Clients, t.Classes, t.Backbone = 1, len(e.Classes), b.Name()
	s := method.NewScope(t, e.Method.Params(t))
	logits := e.Method.Logits(s)
	rows, bytes, err := forImages(b, e.Classes, e.Training.Memory, logits, e.Method.Loss(s, logits))
	if rows == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("a text prompt for each image: %d at a time of a batch of %d, about %.2f GiB in each worker "+
		"(train.memory_gb)", min(rows, e.Training.Batch), e.Training.Batch,
		gib(bytes*min(rows, e.Training.Batch))), nil
}

// inParts runs a step's graph on as many rows of a batch at a time as it may, and gives its last inputs and the mean of
// its outputs, each part counting by its rows. That is the output for the whole batch where a loss is a mean over rows,
// or depends on none, as the loss of a method with prompts for each image must be.
func (p *program) inParts(ctx context.Context, in inputs, host hosts, epoch int) (feed, out tensor.Map, err error) {
	rows := in.batch[method.LabelInput].Shape[0]
	most := p.most
	if most == 0 {
		most = rows
	}
	whole := in.batch
	for from := 0; from < rows; from += most {
		to := min(rows, from+most)
		if to-from < rows {
			in.batch = rowsOf(whole, rows, from, to)
		}
		if feed, err = in.feed(p, host, epoch); err != nil {
			return nil, nil, err
		}
		part, err := p.session.Run(ctx, feed)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case to-from == rows:
			out = part
		case out == nil:
			out = part.Scale(float64(to-from) / float64(rows))
		default:
			out.Axpy(float64(to-from)/float64(rows), part)
		}
	}
	return feed, out, nil
}

// rowsOf are the rows from..to of a batch; what has not as many rows stays whole.
func rowsOf(batch tensor.Map, rows, from, to int) tensor.Map {
	index := all(rows)[from:to]
	out := tensor.Map{}
	for name, t := range batch {
		if len(t.Shape) > 0 && t.Shape[0] == rows {
			t = t.Rows(index)
		}
		out[name] = t
	}
	return out
}

// atOnce is how many rows of a data set are scored at a time; 0 is all.
func (p *program) atOnce() int {
	const large = 64 // with patches or pixels
	switch {
	case len(p.also) == 0:
		return p.most
	case p.most == 0:
		return large
	}
	return min(large, p.most)
}
