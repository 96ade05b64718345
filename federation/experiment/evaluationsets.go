package experiment

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/spec"
)

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
		s, err := sets.Open(c)
		if err != nil {
			return fmt.Errorf("eval.sets: %w", err)
		}
		if err := b.dropUnreadable(ctx, s, progress); err != nil {
			return fmt.Errorf("eval.sets: %s: %w", name, err)
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

// evaluationFeatures computes the features of all evaluation sets.
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
