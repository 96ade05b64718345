package engine

import (
	"context"
	"fmt"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// RunSurvey answers one survey.
func (w *Worker) RunSurvey(c *Client, o Order, s State) (method.Upload, error) {
	if w.Guard != nil {
		answer, ok, err := w.Guard.Answer(c.ID, o)
		if ok || err != nil {
			return method.Upload{Client: c.ID, N: 1, Extra: answer}, err
		}
	}
	l, _ := w.begin(c, o, s)
	q, ok := o.survey(w.Method)
	if !ok {
		return method.Upload{}, fmt.Errorf("round %d, client %d: the method has no survey %q", o.Round+1, c.ID, o.Survey)
	}
	answer, err := q.Compute(l)
	if err == nil {
		err = w.traceSurvey(c, o, s, answer)
	}
	if err != nil {
		return method.Upload{}, fmt.Errorf("round %d, client %d, survey %s: %w", o.Round+1, c.ID, o.Survey, err)
	}
	return method.Upload{Client: c.ID, N: c.Train.Len(), Extra: answer}, nil
}

// traceSurvey records an answer and the rows that it was made of.
func (w *Worker) traceSurvey(c *Client, o Order, st State, answer tensor.Map) error {
	if w.Tracer == nil {
		return nil
	}
	l, _ := w.begin(c, o, st) // the same random numbers again, as of an Ask that draws its rows first
	rows, err := c.Train.Batch(all(c.Train.Len()), l.Rand)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("r%d/survey/%s/c%d", o.Round, o.Survey, c.ID)
	traceAll(w.Tracer, at, tensor.Map{"image": rows["image"], "label": rows["label"]})
	traceAll(w.Tracer, at, answer)
	return nil
}

// RunTest counts right answers on a client's test data, in each evaluation that the method has: with the shared
// parameters that the server sent, and with those that the client itself last trained. A client that never trained has
// none of its own and uses the server's.
func (w *Worker) RunTest(ctx context.Context, c *Client, o Order, s State) (Scores, error) {
	if o.Exam != "" {
		x, ok := w.exams[o.Exam]
		if !ok {
			return Scores{}, fmt.Errorf("round %d, client %d: there is no exam %q here", o.Round+1, c.ID, o.Exam)
		}
		return x.take(ctx, c, o, s)
	}
	fail := func(err error) (Scores, error) {
		return Scores{}, fmt.Errorf("round %d, client %d, test: %w", o.Round+1, c.ID, err)
	}
	r := Scores{Examples: c.Test.Len(), Untrained: len(s.Private)+len(s.Own) == 0}
	l, s := w.begin(c, o, s)
	r.Untrained = r.Untrained && len(w.Method.Params(l.Task)) > 0
	p, err := w.c.score(c.Backbone, l.Task)
	if err != nil {
		return fail(err)
	}
	has := EvaluableOf(w.Method, l.Task)
	score := func() (*tensor.Tensor, *Hits, error) {
		logits, err := w.scoresOnce(ctx, p, l, s, c.Test)
		if err == nil {
			err = finite("", tensor.Map{"a class score": logits})
		}
		if err != nil {
			return nil, nil, err
		}
		h := hits(logits, c.Test.Labels(), c.classes())
		if o.Counts {
			h.counts = confusion(logits, c.Test.Labels())
		}
		return logits, &h, nil
	}
	var logits [2]*tensor.Tensor
	if has.Global {
		if logits[method.GlobalView], r.Global, err = score(); err != nil {
			return fail(err)
		}
	}
	switch {
	case !has.Personal:
	case has.Global && !p.reads(s.Own):
		logits[method.PersonalView], r.Personal = logits[method.GlobalView], r.Global
	default:
		if len(s.Own) > 0 {
			l.Shared = s.Own
		}
		if logits[method.PersonalView], r.Personal, err = score(); err != nil {
			return fail(err)
		}
	}
	if w.Tracer != nil {
		tr := traceAt(w.Tracer, o.Round, c.ID)
		tr.put("eval/logits", logits[has.headline("", w.Method)])
		tr.put("eval/label", tensor.OfInts(c.Test.Labels(), c.Test.Len()))
		rows, err := c.Test.Batch(all(c.Test.Len()), l.Rand, p.also...)
		if err != nil {
			return fail(err)
		}
		tr.put("eval/image", rows[method.ImageInput])
		if remembers(w.Method, l.Task) {
			m, err := l.Memory()
			if err != nil {
				return fail(err)
			}
			tr.put("memory/image", m[method.ImageInput])
			tr.put("memory/label", m[method.LabelInput])
		}
		for _, name := range p.also {
			tr.put("eval/"+name, rows[name])
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
