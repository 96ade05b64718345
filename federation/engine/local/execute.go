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
		replies, after, err := w.TrainTogether(ctx, []Job{{c, o, s}})
		if err != nil {
			return r, nil, err
		}
		return replies[0], &after[0], nil
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
		err = checkReply(Job{c, o, s}, r)
	}
	if err != nil {
		return message.Reply{Client: c.ID}, nil, err
	}
	return r, nil, nil
}

// checkReply refuses tensors that are no numbers.
func checkReply(j Job, r message.Reply) error {
	if err := message.CheckFinite("upload ", message.UploadTensors(r.Upload)); err != nil {
		return ofTurn(j.Client, j.Instruction, err)
	}
	return nil
}
