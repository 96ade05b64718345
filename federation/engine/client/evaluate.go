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

// ComputeStatistic answers a statistic of the method: its tensors are Upload.Extra, and N is the number of the client's
// training examples. An instruction that Settings.Guard answers does not reach the method, and its N is 1. The client's
// state does not change.
func (w *Worker) ComputeStatistic(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state message.ClientState) (method.Upload, error) {
	if w.Settings.Guard != nil {
		answer, ok, err := w.Settings.Guard.Answer(client.ID, instruction)
		if ok || err != nil {
			return method.Upload{Client: client.ID, N: 1, Extra: answer}, err
		}
	}

	local, _ := w.Begin(ctx, client, instruction, state)
	q, ok := instruction.StatisticOf(w.Experiment.Method)
	if !ok {
		return method.Upload{}, fmt.Errorf("round %d, client %d: the method has no statistic %q", instruction.Round+1,
			client.ID, instruction.Statistic)
	}

	answer, err := q.Compute(local)
	if err == nil && w.Settings.Tracer != nil {
		err = w.traceStatistic(ctx, client, instruction, state, answer, local.Draws.Count())
	}

	if err != nil {
		return method.Upload{}, fmt.Errorf("round %d, client %d, statistic %s: %w", instruction.Round+1, client.ID,
			instruction.Statistic, err)
	}

	return method.Upload{Client: client.ID, N: client.Train.Len(), Extra: answer}, nil
}

// Test counts correct predictions on a client's test data, in each evaluation of the method: with the shared parameters
// that the server sent, and with those that the client last trained. A client that never trained uses the server's.
func (w *Worker) Test(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state message.ClientState) (message.Scores, error) {
	if instruction.Set != "" {
		x, ok := w.evaluators[instruction.Set]
		if !ok {
			return message.Scores{}, fmt.Errorf("round %d, client %d: this client has no evaluation set %q",
				instruction.Round+1, client.ID, instruction.Set)
		}
		return x.evaluate(ctx, client, instruction, state)
	}

	w.compiler.beginTests(instruction.Round)
	fail := func(err error) (message.Scores, error) {
		return message.Scores{}, fmt.Errorf("round %d, client %d, test: %w", instruction.Round+1, client.ID, err)
	}
	scores := message.Scores{Examples: client.Test.Len(), Untrained: len(state.Private)+len(state.Own) == 0}
	local, state := w.Begin(ctx, client, instruction, state)
	scores.Untrained = scores.Untrained && len(w.Experiment.Method.Params(local.Task)) > 0
	plan, err := w.compiler.score(ctx, client.Backbone, local.Task)
	if err != nil {
		return fail(err)
	}

	has := w.compiler.evaluable(local.Task)
	score := func() (*tensor.Tensor, metrics.Statistics, error) {
		logits, err := w.scoresOnce(ctx, plan, local, state, client.Test)
		if err == nil {
			err = message.CheckFinite("", tensor.Map{"a class score": logits})
		}
		if err != nil {
			return nil, nil, err
		}
		examples := metrics.Examples{Scores: logits, Labels: client.Test.Labels(), Own: client.Classes()}
		return logits, metrics.Compute(examples, instruction.Labels()), nil
	}

	var logits [2]*tensor.Tensor
	var read [2]tensor.Map // inputs of the scores by view, for a trace
	for _, view := range w.evaluations(has, plan, state) {
		statistics := &scores.Global
		if view == method.PersonalView {
			statistics = &scores.Personal
			if w.Experiment.Training.FineTune > 0 {
				if local, state, err = w.fineTuned(ctx, client, instruction, state); err != nil {
					return fail(err)
				}
				scores.Untrained = false
			} else if len(state.Own) > 0 {
				local.Shared = state.Own
			}
		}

		if logits[view], *statistics, err = score(); err != nil {
			return fail(err)
		}

		if w.Settings.Tracer != nil {
			read[view] = plan.valuesWithoutRows(inputsOf(local, state))
		}
	}

	if has.Personal && scores.Personal == nil {
		logits[method.PersonalView], scores.Personal = logits[method.GlobalView], scores.Global
		read[method.PersonalView] = read[method.GlobalView]
	}

	if view := has.Headline(w.Experiment.Plan.View, w.Experiment.Method); w.Settings.Tracer != nil {
		if err := w.traceTest(client, instruction, plan, local, logits[view], read[view]); err != nil {
			return fail(err)
		}
	}

	return scores, nil
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

func (w *Worker) validate(ctx context.Context, client *spec.Client, instruction message.Instruction,
	s message.ClientState) (message.Scores, error) {
	if client.Val == nil || client.Val.Len() == 0 {
		return message.Scores{}, nil
	}

	silent, other := *w, *client
	silent.Settings.Tracer, other.Test = nil, client.Val
	r, err := silent.Test(ctx, &other, instruction, s)
	if err != nil {
		err = fmt.Errorf("validation: %w", err)
	}

	return r, err
}

// adapt tests a client that never trains. The client takes some steps of the method's local training on its training
// data, from the shared parameters and its first private ones, at the learning rate before the schedule. Its state is
// not kept.
func (w *Worker) adapt(ctx context.Context, client *spec.Client, instruction message.Instruction) (message.Scores,
	error) {
	own, s := w.quiet(), message.ClientState{}
	if instruction.Steps > 0 {
		own.Experiment.Training = own.Experiment.Training.Steps(client.ID, instruction.Steps)
		var err error
		if _, s, err = own.Train(ctx, client, instruction, s); err != nil {
			return message.Scores{}, fmt.Errorf("%w; with this method a new client cannot take steps here: set "+
				"eval.new_steps: [0]", err)
		}
	}

	return own.Test(ctx, client, instruction, s)
}

// quiet returns this worker without tracer, guard, noise and shared optimizer, for training that precedes one test and
// that nobody else sees.
func (w *Worker) quiet() *Worker {
	c := *w
	c.Settings.Tracer, c.Settings.Guard, c.Settings.Terms, c.Experiment.Training.FineTune = nil, nil, false, 0
	c.Settings.Noise, c.shared, c.alone = nil, nil, true // the parameters stay here
	return &c
}

// fineTuned trains the parameters that the server sent for some epochs, by the method's local training at the learning
// rate of the round, and returns the client with the result.
func (w *Worker) fineTuned(ctx context.Context, client *spec.Client, instruction message.Instruction,
	s message.ClientState) (*method.Local, message.ClientState, error) {
	own := w.quiet()
	own.Experiment.Training = w.Experiment.Training.Tuning(client.ID)
	instruction.Statistic = "fine-tuning" // draws its own random numbers
	_, s, err := own.Train(ctx, client, instruction, s)
	if err != nil {
		return nil, s, fmt.Errorf("fine-tuning: %w", err)
	}

	local, s := w.Begin(ctx, client, instruction, s)
	local.Shared = s.Own
	return local, s, nil
}

// setEvaluator is a worker that knows the classes of an evaluation set.
type setEvaluator struct {
	worker *Worker
	set    spec.EvaluationSet
}

func setEvaluators(experiment *spec.Experiment, set Settings, caches caches) map[string]setEvaluator {
	out := map[string]setEvaluator{}
	set.Tracer = nil
	for _, x := range experiment.EvaluationSets {
		other := *experiment
		other.EvaluationSets, other.Training.FineTune = nil, 0
		if len(x.Classes) > 0 {
			other.Classes = x.Classes
		}
		if x.Template != "" {
			other.Template = x.Template
		}
		out[x.Name] = setEvaluator{newWorker(&other, set, caches), x}
	}

	return out
}

func (x setEvaluator) evaluate(ctx context.Context, client *spec.Client, instruction message.Instruction,
	s message.ClientState) (message.Scores, error) {
	instruction.Set = ""
	scores, err := x.worker.Test(ctx, x.visitor(client), instruction, s)
	if err != nil {
		return scores, fmt.Errorf("evaluation set %s: %w", x.set.Name, err)
	}
	return scores, nil
}

// visitor returns a copy of a client whose test data is the evaluation set.
func (x setEvaluator) visitor(client *spec.Client) *spec.Client {
	v := *client
	v.Test = x.set.Test[client.Backbone.Name()]
	if len(x.set.Classes) > 0 {
		v.Train = spec.LabelsOnly(v.Test.Labels()) // its own examples have other classes
	}
	return &v
}

// PrepareTexts computes the features of the hand-written texts that a client's steps and tests read. An instruction
// ends with the next one, and a slow machine would begin again in each. Errors are those of the first turn too.
func (w *Worker) PrepareTexts(ctx context.Context, client *spec.Client) {
	if losses, err := w.compiler.losses(w.compiler.scope(w.Task(client, client.ID+1))); err == nil {
		_, _ = w.compiler.allLowered(ctx, client.Backbone, valuesOf(losses), nil, nil)
	}

	for _, x := range w.evaluators {
		visitor := x.visitor(client)
		_, _ = x.worker.Logits(ctx, visitor, x.worker.compiler.scope(x.worker.Task(visitor, client.ID+1)))
	}
}

// ZeroShot compares hand-written prompts with chance on the test data of some clients, for each backbone. Class scores
// are the products of the image features, unit rows, with the text features.
func (w *Worker) ZeroShot(ctx context.Context, clients []*spec.Client) ([]record.ZeroShot, error) {
	type sum struct {
		right, examples int
		mean            []float64 // accuracy of each client
		class           map[int64]int
		failed          string
	}
	sums := map[string]*sum{}
	for _, client := range clients {
		total := sums[client.Backbone.Name()]
		if total == nil {
			total = &sum{class: map[int64]int{}}
			sums[client.Backbone.Name()] = total
		}

		if total.failed != "" {
			continue
		}

		texts, err := w.compiler.handText(ctx, client.Backbone, method.HandTexts{})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		if err != nil {
			total.failed = err.Error()
			continue
		}

		before := *total
		for rows := range slices.Chunk(tensor.Indices(client.Test.Len()), zeroShotRows) {
			batch, err := client.Test.Batch(rows, nil)
			if err != nil {
				return nil, fmt.Errorf("zero-shot accuracy, client %d: %w", client.ID, err)
			}
			scores := products(batch["image"], texts)
			for i, y := range batch["label"].Ints {
				total.class[y]++
				total.examples++
				if metrics.Argmax(scores.Row(i).Data) == y {
					total.right++
				}
			}
		}

		if n := total.examples - before.examples; n > 0 {
			total.mean = append(total.mean, float64(total.right-before.right)/float64(n))
		}
	}

	var out []record.ZeroShot
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum := sums[name]
		if sum.failed != "" {
			out = append(out, record.ZeroShot{Backbone: name, Failed: sum.failed})
			continue
		}

		if sum.examples == 0 {
			continue
		}

		most := slices.Max(slices.Collect(maps.Values(sum.class)))
		classes := len(w.Experiment.Classes)
		out = append(out, record.ZeroShot{Backbone: name, Accuracy: float64(sum.right) / float64(sum.examples),
			Clients: len(sum.mean), Mean: metrics.Mean(sum.mean), Classes: classes,
			Chance: max(1/float64(classes), float64(most)/float64(sum.examples))})
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
