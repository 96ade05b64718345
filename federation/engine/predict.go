package engine

import (
	"context"
	"fmt"
	"strconv"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Learned takes from the tensors of a run folder (PromptsFile) what one client is tested with.
func Learned(prompts tensor.Map, client int) (shared tensor.Map, s State) {
	mine := prompts.Under("client/" + strconv.Itoa(client))
	return prompts.Under("shared"), State{Private: mine.Under("private"), Own: mine.Under("own")}
}

// Predict scores rows with what a client learned: class scores [N,C], before softmax. clients is how many there were.
func (w *Worker) Predict(ctx context.Context, c *Client, clients int, prompts tensor.Map, rows method.Data) (*tensor.Tensor, error) {
	shared, s := Learned(prompts, c.ID)
	for _, p := range w.Method.Params(w.task(c, clients)) {
		t := shared[p.Name]
		if p.Owner == method.Private {
			t = s.Private[p.Name]
		}
		if t == nil {
			return nil, fmt.Errorf("the run has no %s parameter %s for client %d", p.Owner, p.Name, c.ID)
		}
	}
	if w.Method.View() == method.Own && len(s.Own) > 0 {
		shared = s.Own
	}
	l, s := w.begin(c, Order{Kind: Test, Of: clients, Shared: shared}, s)
	p, err := w.c.score(c.Backbone, l.Task)
	if err != nil {
		return nil, err
	}
	return w.run(ctx, p, l, s, rows)
}
