package local

import (
	"context"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
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
	alone, s := w.alone(), message.ClientState{}
	if o.Steps > 0 {
		alone.Training = alone.Training.Steps(c.ID, o.Steps)
		var err error
		if _, s, _, err = alone.Train(ctx, c, o, s); err != nil {
			return message.Scores{}, fmt.Errorf("%w; a new client cannot take steps with this method here: set "+
				"eval.new_steps: [0]", err)
		}
	}
	return alone.Test(ctx, c, o, s)
}

// alone is this worker for training that nobody else hears of, and that is the only one before a test.
func (w *Worker) alone() *Worker {
	c := *w
	c.Tracer, c.Guard, c.Terms, c.Training.FineTune = nil, nil, false, 0
	return &c
}

// fineTuned is a client that trained what the server sent for some epochs, by the method's own local training at the
// learning rate of the round, and is tested with that.
func (w *Worker) fineTuned(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (*method.Local, message.ClientState, error) {
	alone := w.alone()
	alone.Training = w.Training.Tuning(c.ID)
	o.Statistic = "fine-tuning" // draws its own random numbers
	t, err := alone.begin(c, o, s, nil)
	if err == nil {
		err = alone.train(ctx, []*turn{t})
	}
	if err != nil {
		return nil, s, fmt.Errorf("fine-tuning: %w", err)
	}
	t.l.Data = c.Train
	return t.l, t.s, nil
}
