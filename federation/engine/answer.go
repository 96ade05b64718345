package engine

import (
	"context"
	"fmt"
)

// Answer does what an order asks of one client that remembers s. next is what the client is to remember if its upload
// counts, nil where that changes nothing.
func (w *Worker) Answer(ctx context.Context, c *Client, o Order, s State) (r Reply, next *State, err error) {
	r.Client = c.ID
	switch o.Kind {
	case Train:
		var after State
		r.Upload, after, r.Stats, err = w.runTrain(ctx, c, o, s, w.shared)
		next = &after
	case Ask:
		r.Upload, err = w.RunSurvey(c, o, s)
	case Test:
		if r.Scores, err = w.RunTest(ctx, c, o, s); err == nil && o.Counts && w.Confusion {
			r.Upload.Extra = r.Scores.counts()
		}
	case Validate:
		r.Scores, err = w.validate(ctx, c, o, s)
	case Adapt:
		r.Scores, err = w.adapt(ctx, c, o)
	default:
		err = fmt.Errorf("unknown order %q", o.Kind)
	}
	if err == nil {
		if err = finite("upload ", uploadTensors(r.Upload)); err != nil {
			err = fmt.Errorf("round %d, client %d: %w", o.Round, c.ID, err)
		}
	}
	if err != nil {
		return Reply{Client: c.ID}, nil, err
	}
	return r, next, nil
}
