package local

import (
	"context"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// inParts runs a step's graph on as many rows of a batch at a time as it may, and gives its last inputs and the mean of
// its outputs, each part counting by its rows. That is the output for the whole batch where a loss is a mean over rows,
// or depends on none, as the loss of a method with prompts for each image must be.
func (p *program) inParts(ctx context.Context, in inputs, host callbackValues, epoch int) (feed, out tensor.Map, err error) {
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
	index := message.Indices(rows)[from:to]
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
	switch {
	case len(p.also) == 0:
		return p.most
	case p.most == 0:
		return rowsPerRun
	}
	return min(rowsPerRun, p.most)
}
