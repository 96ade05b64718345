package pretrain

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Progress reports a finished step.
type Progress struct {
	Step, Steps int // finished, total
	Loss        float64
	Rate        float64 // learning rate of the step
	Scale       float64 // logit scale after the step
	Elapsed     time.Duration
}

// Result describes a finished training.
type Result struct {
	Folder     string // of the checkpoint
	Parameters int
	Loss       float64 // mean over the last steps, at most 50
	Accuracy   []Accuracy
	Elapsed    time.Duration // of this call
}

// lastSteps is the number of steps that Result.Loss averages.
const lastSteps = 50

// trainer is the state of a training.
type trainer struct {
	cfg     Config
	data    *batches
	session *ort.Session
	rate    optim.Rate
	opt     *optim.Optimizer
	weights tensor.Map
	moments tensor.Map // running means and variances of the image tower's batch normalisations
	step    int
	losses  []float64 // of the last steps
}

// Run trains, or continues from the checkpoint in cfg.Out, and writes the finished backbone there. progress may be nil;
// it is called after every step.
func Run(ctx context.Context, cfg Config, progress func(Progress)) (Result, error) {
	start := time.Now()
	if err := cfg.Validate(); err != nil {
		return Result{}, fmt.Errorf("pretrain: %w", err)
	}
	t, err := newTrainer(cfg)
	if err != nil {
		return Result{}, fmt.Errorf("pretrain: %w", err)
	}
	defer t.session.Close()
	if err := t.train(ctx, start, progress); err != nil {
		return Result{}, fmt.Errorf("pretrain: step %d: %w", t.step+1, err)
	}
	maps.Copy(t.weights, t.moments)
	meanOfUnreached(t.weights, cfg.Caption)
	if err := Export(cfg, t.weights); err != nil {
		return Result{}, fmt.Errorf("pretrain: %w", err)
	}
	e, err := newEvaluator(cfg, t.weights, t.data.tok)
	if err != nil {
		return Result{}, fmt.Errorf("pretrain: evaluation: %w", err)
	}
	defer e.close()
	acc, err := e.sources(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("pretrain: evaluation: %w", err)
	}
	r := Result{Folder: cfg.Out, Accuracy: acc, Elapsed: time.Since(start)}
	for _, l := range t.losses {
		r.Loss += l / float64(len(t.losses))
	}
	for _, w := range t.weights {
		r.Parameters += w.Len()
	}
	return r, nil
}

func newTrainer(cfg Config) (*trainer, error) {
	tok, err := cfg.vocabulary()
	if err != nil {
		return nil, err
	}
	t := &trainer{cfg: cfg, weights: fresh(cfg.text(), cfg.image(), tok.VocabSize(), cfg.Seed),
		moments: freshMoments(cfg.image())}
	if err := start(cfg.Start, cfg.Take, t.weights, t.moments); err != nil {
		return nil, err
	}
	if t.rate, err = cfg.Train.rate(); err != nil {
		return nil, err
	}
	if t.opt, err = cfg.Train.optimizer(); err != nil {
		return nil, err
	}
	if t.data, err = newBatches(cfg, tok); err != nil {
		return nil, err
	}
	if err := t.resume(); err != nil {
		return nil, err
	}
	model, err := stepGraph(cfg.text(), cfg.image(), t.weights, cfg.Train.Batch, cfg.Caption)
	if err != nil {
		return nil, err
	}
	t.session, err = ort.NewSession(model, ort.Options{IntraThreads: cfg.Threads})
	return t, err
}

func (t *trainer) train(ctx context.Context, start time.Time, progress func(Progress)) error {
	ctx, cancel := context.WithCancel(ctx)
	type made struct {
		batch tensor.Map
		err   error
	}
	next := make(chan made, 1) // the next batch is prepared during a step
	done := make(chan struct{})
	go func() {
		defer close(done)
		for step := t.step; step < t.cfg.Train.Steps; step++ {
			b, err := t.data.batch(ctx, step, t.cfg.Threads)
			select {
			case next <- made{b, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { cancel(); <-done }()
	for t.step < t.cfg.Train.Steps {
		var m made
		select {
		case m = <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if m.err != nil {
			return m.err
		}
		loss, err := t.learn(ctx, m.batch)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(Progress{Step: t.step, Steps: t.cfg.Train.Steps, Loss: loss, Rate: t.rate(t.step - 1),
				Scale: math.Exp(float64(t.weights[logScale].Data[0])), Elapsed: time.Since(start)})
		}
		if every := t.cfg.Checkpoint; every > 0 && t.step%every == 0 {
			if err := t.save(); err != nil {
				return err
			}
		}
	}
	return nil
}

// learn performs one training step.
func (t *trainer) learn(ctx context.Context, batch tensor.Map) (loss float64, err error) {
	for name, w := range t.weights {
		batch[name] = w
	}
	out, err := t.session.Run(ctx, batch)
	if err != nil {
		return 0, err
	}
	loss = float64(out[outLoss].Data[0])
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("the loss is %v: lower train.lr", loss)
	}
	grads := tensor.Map{}
	for name := range t.weights {
		grads[name] = out[outGrad+name]
	}
	if err := t.opt.Step(t.weights, grads, t.rate(t.step)); err != nil {
		return 0, err
	}
	follow(t.moments, out)
	s := t.weights[logScale].Data
	s[0] = min(max(s[0], 0), float32(math.Log(maxScale)))
	t.step++
	if t.losses = append(t.losses, loss); len(t.losses) > lastSteps {
		t.losses = t.losses[1:]
	}
	return loss, nil
}
