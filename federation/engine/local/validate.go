package local

import (
	"context"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
)

// validate tests a client on its validation data.
func (w *Worker) validate(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (message.Scores, error) {
	if c.Val == nil || c.Val.Len() == 0 {
		return message.Scores{}, nil
	}
	quiet, other := *w, *c
	quiet.Tracer, other.Test = nil, c.Val
	r, err := quiet.Test(ctx, &other, o, s)
	if err != nil {
		err = fmt.Errorf("validation: %w", err)
	}
	return r, err
}

// adapt tests a client that never trains: it takes some steps of the method's own local training on its training data,
// from the shared parameters and its own first private ones, at the learning rate before the schedule. Nothing is
// remembered.
func (w *Worker) adapt(ctx context.Context, c *spec.Client, o message.Instruction) (message.Scores, error) {
	alone, s := *w, message.ClientState{}
	alone.Tracer, alone.Guard, alone.Terms = nil, nil, false
	if o.Steps > 0 {
		alone.Training = w.Training.Steps(c.ID, o.Steps)
		var err error
		if _, s, _, err = alone.Train(ctx, c, o, s); err != nil {
			return message.Scores{}, fmt.Errorf("%w; a new client cannot take steps with this method here: set "+
				"eval.new_steps: [0]", err)
		}
	}
	return alone.Test(ctx, c, o, s)
}
