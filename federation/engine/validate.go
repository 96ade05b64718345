package engine

import (
	"context"
	"fmt"
)

// validate tests a client on its validation data.
func (w *Worker) validate(ctx context.Context, c *Client, o Order, s State) (Scores, error) {
	if c.Val == nil || c.Val.Len() == 0 {
		return Scores{}, nil
	}
	quiet, other := *w, *c
	quiet.Tracer, other.Test = nil, c.Val
	r, err := quiet.RunTest(ctx, &other, o, s)
	if err != nil {
		err = fmt.Errorf("validation: %w", err)
	}
	return r, err
}

// adapt tests a client that never trains: it takes some steps of the method's own local training on its training data,
// from the shared parameters and its own first private ones, at the learning rate before the schedule. Nothing is
// remembered.
func (w *Worker) adapt(ctx context.Context, c *Client, o Order) (Scores, error) {
	alone, s := *w, State{}
	alone.Tracer, alone.Guard, alone.Terms = nil, nil, false
	if o.Steps > 0 {
		alone.Train = w.Train.steps(c.ID, o.Steps)
		var err error
		if _, s, _, err = alone.RunTrain(ctx, c, o, s); err != nil {
			return Scores{}, fmt.Errorf("%w; a new client cannot take steps with this method here: set "+
				"eval.new_steps: [0]", err)
		}
	}
	return alone.RunTest(ctx, c, o, s)
}
