package bench

import (
	"context"
	"errors"
	"fmt"

	"promptfed/federation/engine/trace"
	"promptfed/federation/methods/parts/projection"
	"promptfed/runtime/tensor"
)

// interleave uses the full number of rounds with Quick too, so that the plain form is equally warm. Each round has so
// many runs that its median is not the run right after the plain form, which meets the plain form's memory.
func (o Options) interleave(ctx context.Context, label string, all ...*contestant) error {
	runs := 7
	if o.Quick {
		runs = 3
	}
	return interleave(ctx, label, o.Progress, 3, runs, all...)
}

// closer closes opened resources in reverse order.
type closer []func() error

func (c *closer) add(f func() error) { *c = append(*c, f) }

func (c closer) close() error {
	var errs []error
	for i := len(c) - 1; i >= 0; i-- {
		errs = append(errs, c[i]())
	}
	return errors.Join(errs...)
}

// measure compares the step with the plain step and with bare products, on one class list and one number of threads.
func measure(ctx context.Context, o Options, t tower, set, threads int) (r Result, err error) {
	var open closer
	defer func() { err = errors.Join(err, open.close()) }()
	session := o.Session
	session.IntraThreads = threads
	classes := sets[set].classes.Names()
	few := classes[:o.plainClasses(t.text, len(classes))]
	label := fmt.Sprintf("%s, threads %d", sets[set].name, threads)

	got, err := gradients(ctx, t, few, o.Tokens, session) // loads the weights, which both forms share
	if err != nil {
		return r, err
	}
	plainTower := t
	plainTower.plain = true
	rec := trace.NewRecorder()
	plain, err := promptFL(plainTower, few, o.Tokens, session, rec)
	if err != nil {
		return r, err
	}
	open.add(plain.close)
	o.Progress(label+", plain form", 0, 1)
	if r.PlainBytes, err = grown(ctx, plain.run); err != nil {
		return r, fmt.Errorf("plain step: %w", err)
	}
	o.Progress(label+", plain form", 1, 1)
	want, err := traced(rec)
	if err != nil {
		return r, err
	}
	r.GradientError = distance(got, want)

	cheap, err := promptFL(t, classes, o.Tokens, session, nil)
	if err != nil {
		return r, err
	}
	open.add(cheap.close)
	if r.StepBytes, err = grown(ctx, cheap.run); err != nil {
		return r, fmt.Errorf("step: %w", err)
	}
	three, err := fedPHA(t, classes, o.Tokens, session)
	if err != nil {
		return r, err
	}
	open.add(three.close)
	bare, err := towerProducts(t, cheap.rows(), true, session)
	if err != nil {
		return r, err
	}
	open.add(bare.close)
	ours, err := towerProducts(t, cheap.rows(), false, session)
	if err != nil {
		return r, err
	}
	open.add(ours.close)
	bare3, err := towerProducts(t, three.rows(), true, session)
	if err != nil {
		return r, err
	}
	open.add(bare3.close)
	square, err := squareProduct(session)
	if err != nil {
		return r, err
	}
	open.add(square.close)

	step := &contestant{what: "step", run: cheap.run}
	gemm := &contestant{what: "matrix products", run: bare.run}
	own := &contestant{what: "our own matrix products", run: ours.run}
	slow := &contestant{what: "plain step", run: plain.run, slow: true}
	pha := &contestant{what: "step of FedPHA", run: three.run}
	gemm3 := &contestant{what: "matrix products of FedPHA", run: bare3.run}
	big := &contestant{what: "square product", run: square.run}
	if err := o.interleave(ctx, label, step, gemm, own, pha, gemm3, big, slow); err != nil {
		return r, err
	}

	r.Classes, r.ClassCount, r.Threads, r.Rows, r.PlainClasses = sets[set].name, len(classes), threads, cheap.rows(),
		len(few)
	r.Step = summary(step.seconds)
	r.Plain = summary(slow.seconds).scaled(float64(len(classes)) / float64(len(few)))
	r.Speedup = ratio(slow, step) * float64(len(classes)) / float64(len(few))
	r.StepRate = rate(cheap.flops(t), r.Step)
	r.PlainRate = rate(t.text.PlainStepFLOPs(len(classes)), r.Plain)
	r.GEMM = summary(gemm.seconds)
	r.GEMMRate = rate(bare.flops, r.GEMM)
	r.OfGEMM = 100 * ratio(gemm, step) * cheap.flops(t) / bare.flops
	r.Own = summary(own.seconds)
	r.OwnRate = rate(ours.flops, r.Own)
	r.OfOwn = 100 * ratio(own, step) * cheap.flops(t) / ours.flops
	r.FedPHA = summary(pha.seconds)
	r.FedPHARate = rate(three.flops(t), r.FedPHA)
	r.FedPHAOfGEMM = 100 * ratio(gemm3, pha) * three.flops(t) / bare3.flops
	r.SquareRate = rate(square.flops, summary(big.seconds))
	r.Targets = []Target{
		{What: "times faster than the plain step", Want: sets[set].speedup, Got: r.Speedup,
			Met: r.Speedup >= sets[set].speedup},
		{What: "% of the GEMM rate", Want: ofGEMM, Got: r.OfGEMM, Met: r.OfGEMM >= ofGEMM},
	}
	return r, nil
}

// rate returns GFLOP/s.
func rate(flops float64, t Timing) float64 { return flops / t.Median / 1e9 }

// sideBySide compares n clients of one thread each with one client of n threads, over n steps.
func sideBySide(ctx context.Context, o Options, t tower, set, n int) (r SideBySide, err error) {
	var open closer
	defer func() { err = errors.Join(err, open.close()) }()
	classes := sets[set].classes.Names()
	one, many := o.Session, o.Session
	one.IntraThreads, many.IntraThreads = 1, n
	narrow, err := promptFL(t, classes, o.Tokens, one, nil)
	if err != nil {
		return r, err
	}
	open.add(narrow.close)
	wide, err := promptFL(t, classes, o.Tokens, many, nil)
	if err != nil {
		return r, err
	}
	open.add(wide.close)
	if err := narrow.run(ctx); err != nil {
		return r, err
	}
	together := &contestant{what: "clients side by side", run: func(ctx context.Context) error {
		errs := make(chan error, n)
		for range n {
			go func() { errs <- narrow.run(ctx) }()
		}
		var all error
		for range n {
			all = errors.Join(all, <-errs)
		}
		return all
	}}
	inTurn := &contestant{what: "clients in turn", run: func(ctx context.Context) error {
		for range n {
			if err := wide.run(ctx); err != nil {
				return err
			}
		}
		return nil
	}}
	if err := o.interleave(ctx, sets[set].name+", clients side by side", together, inTurn); err != nil {
		return r, err
	}
	r = SideBySide{Classes: sets[set].name, Clients: n, Together: summary(together.seconds),
		InTurn: summary(inTurn.seconds)}
	r.Speedup = ratio(inTurn, together)
	return r, nil
}

// projectors times FedPHA's projector Q [w,w] of a prompt [T,w] for each kind.
func projectors(ctx context.Context, o Options, prompt *tensor.Tensor) ([]Projector, error) {
	const ratio = 0.8 // the paper's
	kinds := projection.Kinds()
	all := make([]*contestant, len(kinds))
	for i, kind := range kinds {
		all[i] = &contestant{what: "projector " + kind, run: func(context.Context) error {
			_, err := projection.PackedFactors(prompt, kind, ratio)
			return err
		}}
	}
	if err := o.interleave(ctx, "projectors", all...); err != nil {
		return nil, err
	}
	out := make([]Projector, len(kinds))
	for i, c := range all {
		out[i] = Projector{Kind: kinds[i], Time: summary(c.seconds)}
	}
	return out, nil
}
