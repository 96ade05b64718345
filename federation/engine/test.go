package engine

import (
	"context"
	"fmt"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// RunSurvey answers one survey.
func (w *Worker) RunSurvey(c *Client, o Order, s State) (method.Upload, error) {
	l := w.begin(c, o, s)
	for _, q := range w.Method.Surveys(o.Round) {
		if q.Name != o.Survey {
			continue
		}
		answer, err := q.Ask(l)
		if err != nil {
			return method.Upload{}, fmt.Errorf("client %d, survey %s: %w", c.ID, o.Survey, err)
		}
		traceAt(w.Tracer, o.Round, c.ID).survey(o.Survey, answer)
		return method.Upload{Client: c.ID, N: c.Train.Len(), Extra: answer}, nil
	}
	return method.Upload{}, fmt.Errorf("client %d: the method has no survey %q in round %d", c.ID, o.Survey, o.Round)
}

func (tr tracer) survey(name string, answer tensor.Map) {
	for k, t := range answer {
		if tr.t != nil {
			tr.t.Put(fmt.Sprintf("r%d/survey/%s/c%d/%s", tr.round, name, tr.client, k), t)
		}
	}
}

// RunTest counts right answers on a client's test data: once with the shared parameters that the server sent, once with
// those that the client itself last trained. A client that never trained has none of its own and uses the server's.
func (w *Worker) RunTest(ctx context.Context, c *Client, o Order, s State) (Scores, error) {
	l := w.begin(c, o, s)
	p, err := w.c.score(c.Backbone, l.Task)
	if err != nil {
		return Scores{}, fmt.Errorf("client %d: %w", c.ID, err)
	}
	r := Scores{Examples: c.Test.Len()}
	views := []method.View{method.Merged, method.Own}
	var logits [2]*tensor.Tensor
	for i, v := range views {
		if v == method.Own {
			if len(s.Own) == 0 {
				logits[i] = logits[0]
				continue
			}
			l.Shared = s.Own
		}
		if logits[i], err = w.run(ctx, p, l, s, c.Test); err != nil {
			return Scores{}, fmt.Errorf("client %d, test: %w", c.ID, err)
		}
	}
	r.Global, r.Personal = right(logits[0], c.Test.Labels()), right(logits[1], c.Test.Labels())
	if w.Tracer != nil {
		tr := traceAt(w.Tracer, o.Round, c.ID)
		tr.put("eval/logits", logits[w.Method.View()])
		tr.put("eval/label", tensor.OfInts(c.Test.Labels(), c.Test.Len()))
		if rows, err := c.Test.Batch(all(c.Test.Len()), l.Rand); err == nil {
			tr.put("eval/image", rows["image"])
			tr.put("eval/patches", rows["patches"])
		}
	}
	return r, nil
}

func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// right counts the rows of scores [N,C] whose largest entry is the label's; of equal entries the first counts.
func right(scores *tensor.Tensor, labels []int64) int {
	n := 0
	for i, y := range labels {
		row := scores.Row(i).Data
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		if best == int(y) {
			n++
		}
	}
	return n
}
