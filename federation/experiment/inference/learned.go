package inference

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Predict returns class scores [N,C], before softmax, of rows for a client's parameters. clients is the number of
// clients.
func Predict(w *client.Worker, ctx context.Context, c *spec.Client, clients int, prompts tensor.Map,
	rows method.Data) (*tensor.Tensor, error) {
	l, s, err := learned(w, c, clients, prompts)
	if err != nil {
		return nil, err
	}
	return w.ScoreRows(ctx, c, l, s, rows)
}

// Accuracy returns a client's accuracy in a round, tested with the parameters that its method's paper tests, as Predict
// uses them. False if the round does not have it.
func Accuracy(w *client.Worker, c *spec.Client, clients int, r record.Record) (float64, bool) {
	e := r.Evaluations.Of(record.EvaluableOf(w.Method, w.Task(c, clients)).Headline(record.MethodView, w.Method))
	at := c.ID
	if len(r.Answered) > 0 {
		at = slices.Index(r.Answered, c.ID)
	}
	if e == nil || at < 0 || at >= len(e.PerClient) {
		return 0, false
	}
	return e.PerClient[at], true
}

// learned returns a client with the parameters that it is tested with.
func learned(w *client.Worker, c *spec.Client, clients int, prompts tensor.Map) (*method.Local, message.ClientState,
	error) {
	shared, s := state.ClientParams(prompts, c.ID)
	for _, p := range w.Method.Params(w.Task(c, clients)) {
		t := shared[p.Name]
		if p.Owner == method.Private {
			t = s.Private[p.Name]
		}
		switch {
		case t == nil && p.Owner == method.Private:
			return nil, s, fmt.Errorf("client %d has no private parameter %s, since it never trained "+
				"(eval.new_clients, or no round selected it); choose another client", c.ID, p.Name)
		case t == nil:
			return nil, s, fmt.Errorf("the run has no shared parameter %s for client %d; it was made by another method",
				p.Name, c.ID)
		}
	}
	l, s := w.Begin(c, message.Instruction{Kind: message.Test, Total: clients, Shared: shared,
		Broadcast: prompts.WithoutPrefix(state.DownFolder + "/" + strconv.Itoa(c.ID))}, s)
	if w.Method.View() == method.PersonalView && len(s.Own) > 0 {
		l.Shared = s.Own.Clone()
	}
	return l, s, nil
}
