package local

import (
	"context"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
)

// Execute does what an instruction asks of one client that remembers s. next is what the client is to remember if its
// upload counts, nil where that changes nothing.
func (w *Worker) Execute(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (r message.Reply, next *message.ClientState, err error) {
	r.Client = c.ID
	switch o.Kind {
	case message.Train:
		var after message.ClientState
		r.Upload, after, r.Stats, err = w.train(ctx, c, o, s, w.shared)
		next = &after
	case message.Compute:
		r.Upload, err = w.ComputeStatistic(c, o, s)
	case message.Test:
		if r.Scores, err = w.Test(ctx, c, o, s); err == nil && o.Confusion && w.Confusion {
			r.Upload.Extra = r.Scores.ConfusionTensors()
		}
	case message.Validate:
		r.Scores, err = w.validate(ctx, c, o, s)
	case message.Adapt:
		r.Scores, err = w.adapt(ctx, c, o)
	default:
		err = fmt.Errorf("unknown instruction %q", o.Kind)
	}
	if err == nil {
		if err = message.CheckFinite("upload ", message.UploadTensors(r.Upload)); err != nil {
			err = fmt.Errorf("round %d, client %d: %w", o.Round+1, c.ID, err)
		}
	}
	if err != nil {
		return message.Reply{Client: c.ID}, nil, err
	}
	return r, next, nil
}
