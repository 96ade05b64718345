package pretrain

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"promptfed/federation/data"
	"promptfed/models/bundle"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Progress reports a finished step.
type Progress struct {
	Step, Steps int // finished, total
	Loss        float64
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
	moments tensor.Map  // running means and variances of the image tower's batch normalisations
	started bundle.File // the weights of Config.Start
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

	trainer, err := newTrainer(cfg)
	if err != nil {
		return Result{}, fmt.Errorf("pretrain: %w", err)
	}
	defer trainer.session.Close()

	if err := trainer.train(ctx, start, progress); err != nil {
		return Result{}, fmt.Errorf("pretrain: step %d: %w", trainer.step+1, err)
	}

	maps.Copy(trainer.weights, trainer.moments)
	meanOfUnreached(trainer.weights, cfg.Caption)
	if err := Export(cfg, trainer.weights); err != nil {
		return Result{}, fmt.Errorf("pretrain: %w", err)
	}

	acc, err := cfg.evaluate(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("pretrain: evaluation: %w", err)
	}

	r := Result{Folder: cfg.Out, Accuracy: acc, Elapsed: time.Since(start)}
	for _, l := range trainer.losses {
		r.Loss += l / float64(len(trainer.losses))
	}

	for _, w := range trainer.weights {
		r.Parameters += w.Len()
	}

	return r, nil
}

func newTrainer(cfg Config) (*trainer, error) {
	tok, err := cfg.vocabulary()
	if err != nil {
		return nil, err
	}

	trainer := &trainer{cfg: cfg, weights: fresh(cfg.text(), cfg.image(), tok.VocabSize(), cfg.Seed),
		moments: freshMoments(cfg.image())}
	if cfg.Start != "" {
		if err := start(cfg.Start, cfg.Take, trainer.weights, trainer.moments); err != nil {
			return nil, err
		}
		if trainer.started, err = (bundle.Hashes{}).File(context.Background(), cfg.Start, weightsFile); err != nil {
			return nil, err
		}
	}

	if trainer.rate, err = cfg.Train.rate(); err != nil {
		return nil, err
	}

	if trainer.opt, err = cfg.Train.optimizer(); err != nil {
		return nil, err
	}

	if trainer.data, err = newBatches(cfg, tok); err != nil {
		return nil, err
	}

	if err := trainer.resume(); err != nil {
		return nil, err
	}

	model, err := stepGraph(cfg.text(), cfg.image(), trainer.weights, cfg.Train.Batch, cfg.Caption)
	if err != nil {
		return nil, err
	}

	trainer.session, err = ort.NewSession(model, ort.Options{IntraThreads: cfg.Threads})
	return trainer, err
}

func (t *trainer) train(ctx context.Context, start time.Time, progress func(Progress)) error {
	first := t.step
	prepare := func(ctx context.Context, i int) (tensor.Map, error) {
		return t.data.batch(ctx, first+i, t.cfg.Threads)
	}

	// the next batches are prepared during a step
	return data.ParallelInOrder(ctx, t.cfg.Train.Steps-first, 1, prepare, func(_ int, batch tensor.Map) error {
		loss, err := t.learn(ctx, batch)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(Progress{Step: t.step, Steps: t.cfg.Train.Steps, Loss: loss, Elapsed: time.Since(start)})
		}
		if every := t.cfg.Checkpoint; every > 0 && t.step%every == 0 {
			return t.save()
		}
		return nil
	})
}

// learn performs one training step.
func (t *trainer) learn(ctx context.Context, batch tensor.Map) (loss float64, err error) {
	maps.Copy(batch, t.weights)
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

// decayMatrices adds decay times the parameter to the updates of parameters with two or more axes.
func decayMatrices(decay float64) optim.Transform {
	matrices := optim.AddDecayedWeights(decay)
	all := matrices.Update
	matrices.Update = func(update, param *tensor.Tensor, slots []*tensor.Tensor, step int64) {
		if len(update.Shape) > 1 {
			all(update, param, slots, step)
		}
	}

	return matrices
}
