package client

import (
	"context"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

func (w *Worker) ComputeStatistic(c *spec.Client, o message.Instruction, s message.ClientState) (method.Upload, error) {
	if w.Guard != nil {
		answer, ok, err := w.Guard.Answer(c.ID, o)
		if ok || err != nil {
			return method.Upload{Client: c.ID, N: 1, Extra: answer}, err
		}
	}
	l, _ := w.Begin(c, o, s)
	q, ok := o.StatisticOf(w.Method)
	if !ok {
		return method.Upload{}, fmt.Errorf("round %d, client %d: the method has no statistic %q", o.Round+1, c.ID,
			o.Statistic)
	}
	answer, err := q.Compute(l)
	if err == nil && w.Tracer != nil {
		err = w.traceStatistic(c, o, s, answer, l.Draws.Count())
	}
	if err != nil {
		return method.Upload{}, fmt.Errorf("round %d, client %d, statistic %s: %w", o.Round+1, c.ID, o.Statistic, err)
	}
	return method.Upload{Client: c.ID, N: c.Train.Len(), Extra: answer}, nil
}

// Test counts correct predictions on a client's test data, in each evaluation of the method: with the shared parameters
// that the server sent, and with those that the client last trained. A client that never trained uses the server's.
func (w *Worker) Test(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (message.Scores, error) {
	if o.Set != "" {
		x, ok := w.evaluators[o.Set]
		if !ok {
			return message.Scores{}, fmt.Errorf("round %d, client %d: this client has no evaluation set %q", o.Round+1,
				c.ID, o.Set)
		}
		return x.evaluate(ctx, c, o, s)
	}
	w.values.begin(o.Round)
	fail := func(err error) (message.Scores, error) {
		return message.Scores{}, fmt.Errorf("round %d, client %d, test: %w", o.Round+1, c.ID, err)
	}
	r := message.Scores{Examples: c.Test.Len(), Untrained: len(s.Private)+len(s.Own) == 0}
	l, s := w.Begin(c, o, s)
	r.Untrained = r.Untrained && len(w.Method.Params(l.Task)) > 0
	p, err := w.c.score(c.Backbone, l.Task)
	if err != nil {
		return fail(err)
	}
	has := record.EvaluableOf(w.Method, l.Task)
	score := func() (*tensor.Tensor, metrics.Statistics, error) {
		logits, err := w.scoresOnce(ctx, p, l, s, c.Test)
		if err == nil {
			err = message.CheckFinite("", tensor.Map{"a class score": logits})
		}
		if err != nil {
			return nil, nil, err
		}
		of := metrics.Examples{Scores: logits, Labels: c.Test.Labels(), Own: c.Classes()}
		return logits, metrics.Compute(of, o.Labels()), nil
	}
	var logits [2]*tensor.Tensor
	var read [2]tensor.Map // inputs of the scores by view, for a trace
	for _, view := range w.evaluations(has, p, s) {
		of := &r.Global
		if view == method.PersonalView {
			of = &r.Personal
			if w.Training.FineTune > 0 {
				if l, s, err = w.fineTuned(ctx, c, o, s); err != nil {
					return fail(err)
				}
				r.Untrained = false
			} else if len(s.Own) > 0 {
				l.Shared = s.Own
			}
		}
		if logits[view], *of, err = score(); err != nil {
			return fail(err)
		}
		if w.Tracer != nil {
			read[view] = p.valuesWithoutRows(inputsOf(l, s))
		}
	}
	if has.Personal && r.Personal == nil {
		logits[method.PersonalView], r.Personal = logits[method.GlobalView], r.Global
		read[method.PersonalView] = read[method.GlobalView]
	}
	if view := has.Headline("", w.Method); w.Tracer != nil {
		if err := w.traceTest(c, o, p, l, logits[view], read[view]); err != nil {
			return fail(err)
		}
	}
	return r, nil
}

// evaluations lists the evaluations that have results of their own: class scores that read no shared parameter are the
// same in both.
func (w *Worker) evaluations(has record.Evaluable, p *plan, s message.ClientState) (out []method.View) {
	if has.Global {
		out = append(out, method.GlobalView)
	}
	if has.Personal && (!has.Global || w.Training.FineTune > 0 || p.reads(s.Own)) {
		out = append(out, method.PersonalView)
	}
	return out
}

func (w *Worker) validate(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (message.Scores, error) {
	if c.Val == nil || c.Val.Len() == 0 {
		return message.Scores{}, nil
	}
	silent, other := *w, *c
	silent.Tracer, other.Test = nil, c.Val
	r, err := silent.Test(ctx, &other, o, s)
	if err != nil {
		err = fmt.Errorf("validation: %w", err)
	}
	return r, err
}

// adapt tests a client that never trains. The client takes some steps of the method's local training on its training
// data, from the shared parameters and its first private ones, at the learning rate before the schedule. Its state is
// not kept.
func (w *Worker) adapt(ctx context.Context, c *spec.Client, o message.Instruction) (message.Scores, error) {
	own, s := w.quiet(), message.ClientState{}
	if o.Steps > 0 {
		own.Training = own.Training.Steps(c.ID, o.Steps)
		var err error
		if _, s, err = own.Train(ctx, c, o, s); err != nil {
			return message.Scores{}, fmt.Errorf("%w; with this method a new client cannot take steps here: set "+
				"eval.new_steps: [0]", err)
		}
	}
	return own.Test(ctx, c, o, s)
}

// quiet returns this worker without tracer, guard, noise and shared optimizer, for training that precedes one test and
// that nobody else sees.
func (w *Worker) quiet() *Worker {
	c := *w
	c.Tracer, c.Guard, c.Terms, c.Training.FineTune = nil, nil, false, 0
	c.Noise, c.shared = nil, nil // the parameters stay here
	return &c
}

// fineTuned trains the parameters that the server sent for some epochs, by the method's local training at the learning
// rate of the round, and returns the client with the result.
func (w *Worker) fineTuned(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (*method.Local, message.ClientState, error) {
	own := w.quiet()
	own.Training = w.Training.Tuning(c.ID)
	o.Statistic = "fine-tuning" // draws its own random numbers
	t, err := own.begin(c, o, s)
	if err == nil {
		err = own.train(ctx, []*turn{t})
	}
	if err != nil {
		return nil, s, fmt.Errorf("fine-tuning: %w", err)
	}
	t.l.Data = c.Train
	return t.l, t.s, nil
}

// setEvaluator is a worker that knows the classes of an evaluation set.
type setEvaluator struct {
	*Worker
	set spec.EvaluationSet
}

func setEvaluators(e *spec.Experiment, set Settings, shared *valueCache) map[string]setEvaluator {
	out := map[string]setEvaluator{}
	set.Tracer = nil
	for _, x := range e.EvaluationSets {
		other := *e
		other.EvaluationSets = nil
		if len(x.Classes) > 0 {
			other.Classes = x.Classes
		}
		if x.Template != "" {
			other.Template = x.Template
		}
		out[x.Name] = setEvaluator{newWorker(&other, set, shared), x}
	}
	return out
}

func (x setEvaluator) evaluate(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (message.Scores, error) {
	o.Set = ""
	scores, err := x.Test(ctx, x.visitor(c), o, s)
	if err != nil {
		return scores, fmt.Errorf("evaluation set %s: %w", x.set.Name, err)
	}
	return scores, nil
}

// visitor returns a copy of a client whose test data is the evaluation set.
func (x setEvaluator) visitor(c *spec.Client) *spec.Client {
	v := *c
	v.Test = x.set.Test[c.Backbone.Name()]
	if len(x.set.Classes) > 0 {
		v.Train = spec.LabelsOnly(v.Test.Labels()) // its own examples have other classes
	}
	return &v
}
