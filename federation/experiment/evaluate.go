package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
)

// checkEval returns an error for a mistake in the section eval.
func (c Config) checkEval() error {
	e := c.Eval
	errs := []error{configtags.Check("eval.", e)}
	bad := func(key, format string, a ...any) { errs = append(errs, configtags.KeyErrorf(key, format, a...)) }
	if c.validated() && !e.Validate {
		bad("eval.validate", "eval.select: best-val and train.patience need the validation accuracy; set it to true")
	}
	if e.SetsEvery < 0 || e.Every > 0 && e.SetsEvery%e.Every != 0 {
		bad("eval.sets_every", "%d; it must be a multiple of eval.every, which is %d, or 0 for the last round only",
			e.SetsEvery, e.Every)
	}
	if n := e.NewClients; n < 0 || n > 0 && n >= c.Partition.Clients {
		bad("eval.new_clients", "%d of %d clients; it must be at least 0, and one client must train", n,
			c.Partition.Clients)
	}
	if e.NewClients > 0 && c.Train.Centralised {
		bad("eval.new_clients", "with train.centralised one client trains on all data, so that no client is new; use "+
			"only one of the two")
	}
	for i, k := range e.NewSteps {
		if k < 0 || k > maxNewSteps || slices.Contains(e.NewSteps[:i], k) {
			bad("eval.new_steps", "%d; each number must lie between 0 and %d and occur once", k, maxNewSteps)
		}
	}
	if e.NewClients > 0 && len(e.NewSteps) == 0 {
		bad("eval.new_steps", "empty; give numbers of steps, such as [0, 10]")
	}
	return errors.Join(errs...)
}

const maxNewSteps = 100_000

// validated reports whether a decision depends on validation data.
func (c Config) validated() bool { return c.Eval.Select == BestVal || c.Train.Patience > 0 }

// split partitions the examples, and takes validation data from training data if the configuration says so.
func (b *Built) split(p partition.Config) (err error) {
	c := b.Config
	if b.Parts, err = partition.Split(p, b.Set, c.Data.Shots, c.Seed); err != nil {
		return err
	}
	if n := c.Eval.NewClients; n > 0 && n < len(b.Parts) {
		b.Parts = holdOutClients(b.Parts, n, c.Seed)
	}
	if c.Data.ValShare > 0 {
		set := *b.Set
		if err := partition.CutValidation(&set, b.Parts, c.Data.ValShare, c.Seed); err != nil {
			return err
		}
		b.Set = &set
	}
	return nil
}

// validating reports whether clients are tested on validation data; wanting it without having any is an error.
func (b *Built) validating() (bool, error) {
	some := slices.ContainsFunc(b.Parts, func(c partition.Client) bool { return len(c.Val) > 0 })
	if b.Config.validated() && !some {
		return false, record.ErrNoValidation
	}
	return b.Config.Eval.Validate && some, nil
}

// Evaluation returns the engine's plan of tests.
func (c Config) Evaluation() record.TestPlan {
	return record.TestPlan{Validate: c.Eval.Validate, BestVal: c.Eval.Select == BestVal, Patience: c.Train.Patience,
		SetsEvery: c.Eval.SetsEvery,
		NewSteps:  c.Eval.NewSteps, Confusion: c.Eval.Confusion != nobody, ZeroShot: c.Eval.ZeroShot}
}

// acrossMachines makes it the evaluation of a server and clients on other machines: counts of classes are sent only on
// request, and accuracies are what clients claim.
func (b *Built) acrossMachines() {
	b.Engine.Evaluate.Confusion, b.Engine.Evaluate.Claimed = b.Config.Eval.Confusion == everyone, true
}

// holdOutClients draws n of the parts by the seed and moves them behind the others, each group in its order, so that
// lists by client have the numbers of the clients that train.
func holdOutClients(parts []partition.Client, n int, seed uint64) []partition.Client {
	drawn := method.Rand(seed, "new clients").Perm(len(parts))[:n]
	var out, end []partition.Client
	for i, p := range parts {
		if slices.Contains(drawn, i) {
			end = append(end, p)
		} else {
			out = append(out, p)
		}
	}
	return append(out, end...)
}

// evaluationSet is an open evaluation set: its examples, and its classes if they are not the experiment's.
type evaluationSet struct {
	name     string
	classes  []string
	template string // empty for that of the experiment
	examples []data.Example
	other    bool     // of another set
	notes    []string // of its set
}

// newEvaluationSet returns an evaluation set of the test examples of a set.
func newEvaluationSet(name string, s *data.Set) (evaluationSet, error) {
	p := evaluationSet{name: name, classes: s.Classes, examples: s.PoolOr(s.Test)}
	if len(p.examples) == 0 {
		return p, fmt.Errorf("evaluation set %s has no test images", name)
	}
	return p, nil
}

// testedImages returns the test images of all clients, in the order of the set.
func (b *Built) testedImages() []data.Example {
	var all []int
	for _, p := range b.Parts {
		all = append(all, p.Test...)
	}
	slices.Sort(all)
	return data.Pick(b.testList(), slices.Compact(all))
}

// openEvaluationSets opens the data of every evaluation set: the classes of the whole set that data.classes leaves out,
// with all test images of the base classes (record.BaseToNew); the domains that partition.leave_out leaves out, with
// all their images; and other sets.
func (b *Built) openEvaluationSets(ctx context.Context, whole *data.Set, progress Progress) error {
	if part, other := b.Config.Data.Classes, map[string]string{metrics.BaseSet: metrics.NewSet,
		metrics.NewSet: metrics.BaseSet}; part != allClasses {
		half, err := partition.ClassSubset(whole, other[part])
		if err != nil {
			return err
		}
		p, err := newEvaluationSet(other[part], half)
		if err != nil {
			return err
		}
		if part == metrics.BaseSet {
			b.evaluationSets = append(b.evaluationSets, evaluationSet{name: part, classes: b.Set.Classes,
				examples: b.testedImages()})
		}
		b.evaluationSets = append(b.evaluationSets, p)
	}
	left, err := partition.LeftOut(b.Config.Partition, b.Set)
	if err != nil {
		return err
	}
	for _, d := range left {
		train, val, test := d.Of(b.Set)
		p := evaluationSet{name: d.Domain, classes: b.Set.Classes, examples: slices.Concat(train, val, test)}
		if len(p.examples) == 0 {
			return fmt.Errorf("evaluation set %s: the domain has no images", d.Domain)
		}
		b.evaluationSets = append(b.evaluationSets, p)
	}
	for _, name := range b.Config.Eval.Sets {
		c := b.Config.Data.Config
		c.Set, c.Split, c.ClassNames, c.Layout = name, "given", nil, sets.Defaults().Layout
		if b.Config.Eval.SetsRoot != "" {
			c.Root = b.Config.Eval.SetsRoot
		}
		c.Generator.Classes = nil
		s, err := b.openImages(c)
		if err != nil {
			return configtags.KeyErrorf("eval.sets", "%w", err)
		}
		if err := b.dropUnreadable(ctx, s, progress); err != nil {
			return configtags.KeyErrorf("eval.sets", "%s: %w", name, err)
		}
		p, err := newEvaluationSet(name, s)
		if err != nil {
			return err
		}
		p.template, p.notes, p.other = s.Template, s.Notes, true
		b.evaluationSets = append(b.evaluationSets, p)
	}
	return nil
}

func (b *Built) evaluationFeatures(ctx context.Context, x features.Extractor) error {
	b.Engine.EvaluationSets = nil
	for _, p := range b.evaluationSets {
		e := spec.EvaluationSet{Name: p.name, Template: p.template, Test: map[string]*spec.Features{}}
		if !slices.Equal(p.classes, b.Set.Classes) {
			e.Classes = p.classes
		}
		for _, f := range b.Bundles {
			rows, err := b.featuresOf(ctx, x, f, p.examples, 1)
			if err != nil {
				return fmt.Errorf("evaluation set %s: %w", p.name, err)
			}
			e.Test[f.Name] = rows
		}
		b.Engine.EvaluationSets = append(b.Engine.EvaluationSets, e)
	}
	return nil
}
