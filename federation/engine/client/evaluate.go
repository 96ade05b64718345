package client

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

func (w *Worker) ComputeStatistic(c *spec.Client, o message.Instruction, s message.ClientState) (method.Upload, error) {
	if w.Settings.Guard != nil {
		answer, ok, err := w.Settings.Guard.Answer(c.ID, o)
		if ok || err != nil {
			return method.Upload{Client: c.ID, N: 1, Extra: answer}, err
		}
	}
	l, _ := w.Begin(c, o, s)
	q, ok := o.StatisticOf(w.Experiment.Method)
	if !ok {
		return method.Upload{}, fmt.Errorf("round %d, client %d: the method has no statistic %q", o.Round+1, c.ID,
			o.Statistic)
	}
	answer, err := q.Compute(l)
	if err == nil && w.Settings.Tracer != nil {
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
	w.caches.beginTests(o.Round)
	fail := func(err error) (message.Scores, error) {
		return message.Scores{}, fmt.Errorf("round %d, client %d, test: %w", o.Round+1, c.ID, err)
	}
	r := message.Scores{Examples: c.Test.Len(), Untrained: len(s.Private)+len(s.Own) == 0}
	l, s := w.Begin(c, o, s)
	r.Untrained = r.Untrained && len(w.Experiment.Method.Params(l.Task)) > 0
	p, err := w.c.score(c.Backbone, l.Task)
	if err != nil {
		return fail(err)
	}
	has := w.c.evaluable(l.Task)
	score := func() (*tensor.Tensor, metrics.Statistics, error) {
		logits, err := w.scoresOnce(ctx, p, l, s, c.Test)
		if err == nil {
			err = message.CheckFinite("", tensor.Map{"a class score": logits})
		}
		if err != nil {
			return nil, nil, err
		}
		examples := metrics.Examples{Scores: logits, Labels: c.Test.Labels(), Own: c.Classes()}
		return logits, metrics.Compute(examples, o.Labels()), nil
	}
	var logits [2]*tensor.Tensor
	var read [2]tensor.Map // inputs of the scores by view, for a trace
	for _, view := range w.evaluations(has, p, s) {
		statistics := &r.Global
		if view == method.PersonalView {
			statistics = &r.Personal
			if w.Experiment.Training.FineTune > 0 {
				if l, s, err = w.fineTuned(ctx, c, o, s); err != nil {
					return fail(err)
				}
				r.Untrained = false
			} else if len(s.Own) > 0 {
				l.Shared = s.Own
			}
		}
		if logits[view], *statistics, err = score(); err != nil {
			return fail(err)
		}
		if w.Settings.Tracer != nil {
			read[view] = p.valuesWithoutRows(inputsOf(l, s))
		}
	}
	if has.Personal && r.Personal == nil {
		logits[method.PersonalView], r.Personal = logits[method.GlobalView], r.Global
		read[method.PersonalView] = read[method.GlobalView]
	}
	if view := has.Headline("", w.Experiment.Method); w.Settings.Tracer != nil {
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
	if has.Personal && (!has.Global || w.Experiment.Training.FineTune > 0 || p.reads(s.Own)) {
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
	silent.Settings.Tracer, other.Test = nil, c.Val
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
		own.Experiment.Training = own.Experiment.Training.Steps(c.ID, o.Steps)
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
	c.Settings.Tracer, c.Settings.Guard, c.Settings.Terms, c.Experiment.Training.FineTune = nil, nil, false, 0
	c.Settings.Noise, c.shared = nil, nil // the parameters stay here
	return &c
}

// fineTuned trains the parameters that the server sent for some epochs, by the method's local training at the learning
// rate of the round, and returns the client with the result.
func (w *Worker) fineTuned(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (*method.Local, message.ClientState, error) {
	own := w.quiet()
	own.Experiment.Training = w.Experiment.Training.Tuning(c.ID)
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
	worker *Worker
	set    spec.EvaluationSet
}

func setEvaluators(e *spec.Experiment, set Settings, k caches) map[string]setEvaluator {
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
		out[x.Name] = setEvaluator{newWorker(&other, set, k), x}
	}
	return out
}

func (x setEvaluator) evaluate(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (message.Scores, error) {
	o.Set = ""
	scores, err := x.worker.Test(ctx, x.visitor(c), o, s)
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

// ZeroShot compares hand-written prompts with chance on the test data of some clients, for each backbone. Class scores
// are the products of the image features, unit rows, with the text features.
func (w *Worker) ZeroShot(ctx context.Context, clients []*spec.Client) ([]record.ZeroShot, error) {
	type sum struct {
		right, n int
		mean     []float64 // accuracy of each client
		class    map[int64]int
		failed   string
	}
	sums := map[string]*sum{}
	for _, client := range clients {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := sums[client.Backbone.Name()]
		if s == nil {
			s = &sum{class: map[int64]int{}}
			sums[client.Backbone.Name()] = s
		}
		if s.failed != "" {
			continue
		}
		texts, err := w.c.handText(client.Backbone, method.HandTexts{})
		if err != nil {
			s.failed = err.Error()
			continue
		}
		before := *s
		for rows := range slices.Chunk(tensor.Indices(client.Test.Len()), zeroShotRows) {
			batch, err := client.Test.Batch(rows, nil)
			if err != nil {
				return nil, fmt.Errorf("zero-shot accuracy, client %d: %w", client.ID, err)
			}
			scores := products(batch["image"], texts)
			for i, y := range batch["label"].Ints {
				s.class[y]++
				s.n++
				if metrics.Argmax(scores.Row(i).Data) == y {
					s.right++
				}
			}
		}
		if n := s.n - before.n; n > 0 {
			s.mean = append(s.mean, float64(s.right-before.right)/float64(n))
		}
	}
	var out []record.ZeroShot
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		if s.failed != "" {
			out = append(out, record.ZeroShot{Backbone: name, Failed: s.failed})
			continue
		}
		if s.n == 0 {
			continue
		}
		most := slices.Max(slices.Collect(maps.Values(s.class)))
		classes := len(w.Experiment.Classes)
		mean, _ := metrics.MeanStd(s.mean)
		out = append(out, record.ZeroShot{Backbone: name, Accuracy: float64(s.right) / float64(s.n),
			Clients: len(s.mean), Mean: mean, Classes: classes,
			Chance: max(1/float64(classes), float64(most)/float64(s.n))})
	}
	return out, nil
}

const zeroShotRows = 1024

// products returns the products of the rows of a [N,D] and b [C,D].
func products(a, b *tensor.Tensor) *tensor.Tensor {
	out := tensor.New(a.Shape[0], b.Shape[0])
	matrix := func(t *tensor.Tensor) blas32.General {
		return blas32.General{Rows: t.Shape[0], Cols: t.Shape[1], Stride: t.Shape[1], Data: t.Data}
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, matrix(a), matrix(b), 0, matrix(out))
	return out
}
