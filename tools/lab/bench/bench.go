package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

// Options are the settings of a measurement. The zero value measures everything, with random weights of ViT-B/16's
// size.
type Options struct {
	Quick    bool           // fewer repetitions, and at most quickClasses in the plain step
	Classes  []string       // names out of cifar10, cifar100 and thousand; empty means the first two
	Threads  []int          // ONNX Runtime's threads within a step; empty means 1 and the number of cores
	Backbone *bundle.Bundle // nil means random weights
	Tokens   int            // length of each prompt; 0 means 16
	Session  ort.Options    // options of every session; threads and weights are set per session
	// PlainClasses is the largest number of classes in one plain step, which needs much memory. With more classes, the
	// plain step runs over this number of classes and its time is scaled. 0 means as many classes as the free memory
	// holds.
	PlainClasses int
	// Progress is called before each run; may be nil.
	Progress func(what string, done, total int)

	arch clip.TextArch // architecture of the random weights; zero means clip.TextB
}

// quickClasses is the largest number of classes in the plain step when Quick is set.
const quickClasses = 10

// batch is the number of images in a step.
const batch = 32

// sets are the available class lists.
var sets = []struct {
	name    string
	classes clip.NamedClasses
	speedup float64 // target: the plain step's time divided by the step's time
}{{"cifar10", clip.CIFAR10, 7}, {"cifar100", clip.CIFAR100, 15}, {"thousand", thousand(), 15}}

// usualSets is the number of class lists that are measured by default.
const usualSets = 2

// thousand returns CIFAR-100's classes ten times, each copy with one more token before the name.
func thousand() (out clip.NamedClasses) {
	for i := range 10 {
		for _, c := range clip.CIFAR100 {
			c.Name, c.IDs = fmt.Sprint(i, " ", c.Name), append([]int{i}, c.IDs...)
			out = append(out, c)
		}
	}
	return out
}

// ofGEMM is the target for the step's rate, in percent of the GEMM rate.
const ofGEMM = 90

func (o Options) complete() (Options, error) {
	if len(o.Classes) == 0 {
		for _, s := range sets[:usualSets] {
			o.Classes = append(o.Classes, s.name)
		}
	}
	for _, name := range o.Classes {
		if find(name) < 0 {
			return o, fmt.Errorf("classes: %q is not known; take cifar10, cifar100, thousand or several", name)
		}
	}
	if len(o.Threads) == 0 {
		o.Threads = slices.Compact([]int{1, runtime.NumCPU()})
	}
	if i := slices.IndexFunc(o.Threads, func(n int) bool { return n < 1 }); i >= 0 {
		return o, fmt.Errorf("threads: %d; it must be 1 or more", o.Threads[i])
	}
	if o.Tokens < 0 || o.PlainClasses < 0 {
		return o, fmt.Errorf("prompt tokens and classes of the plain step are %d and %d; neither may be negative",
			o.Tokens, o.PlainClasses)
	}
	if o.Tokens == 0 {
		o.Tokens = 16
	}
	if o.PlainClasses == 0 && o.Quick {
		o.PlainClasses = quickClasses
	}
	if o.arch.Width == 0 {
		o.arch = clip.TextB
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return o, nil
}

func find(set string) int {
	for i, s := range sets {
		if s.name == set {
			return i
		}
	}
	return -1
}

// Run measures. It takes minutes, or about one minute with Quick. It stops with an error when ctx ends.
func Run(ctx context.Context, o Options) (r Report, err error) {
	o, err = o.complete()
	if err != nil {
		return Report{}, err
	}
	o.Progress("weights of the text tower", 0, 1)
	t, remove, err := openTower(o)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	o.Progress("weights of the text tower", 1, 1)
	r = Report{Backbone: t.name, Width: t.text.Width, Layers: t.text.Layers, Tokens: o.Tokens, Batch: batch,
		Prepack: o.Session.Prepack, Quick: o.Quick, Cores: runtime.NumCPU(), Platform: runtime.GOOS + "/" +
			runtime.GOARCH}
	if r.Weights, err = backboneBytes(ctx, o, t, sets[0].classes.Names()); err != nil {
		return r, fmt.Errorf("memory of the backbone: %w", err)
	}
	for _, name := range o.Classes {
		for _, threads := range o.Threads {
			res, err := measure(ctx, o, t, find(name), threads)
			if err != nil {
				return r, fmt.Errorf("%s, %d threads: %w", name, threads, err)
			}
			r.Results = append(r.Results, res)
		}
		if n := slices.Max(o.Threads); n > 1 {
			side, err := sideBySide(ctx, o, t, find(name), n)
			if err != nil {
				return r, fmt.Errorf("%s, clients side by side: %w", name, err)
			}
			r.SideBySide = append(r.SideBySide, side)
		}
	}
	prompt := method.Draw(seed, 0, "global", []int{o.Tokens, t.text.Width}, promptStd)
	r.Projectors, err = projectors(ctx, o, prompt)
	return r, err
}
