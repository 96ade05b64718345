package experiment

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/features"
	"promptfed/federation/method"
	"promptfed/federation/partition"
	"promptfed/federation/sets"
)

// paper is an exam that has been opened: its examples, and its classes where they are not the experiment's.
type paper struct {
	name     string
	classes  []string
	template string // empty for that of the experiment
	examples []data.Example
	notes    []string // of its set
}

// of makes an exam of the test examples of a set.
func of(name string, s *data.Set) (paper, error) {
	p := paper{name: name, classes: s.Classes, examples: s.Test}
	if s.Pool != nil {
		p.examples = s.Pool
	}
	if len(p.examples) == 0 {
		return p, fmt.Errorf("exam %s has no test images", name)
	}
	return p, nil
}

// tested are the test images of all clients, in the order of the set.
func (b *Built) tested() []data.Example {
	var all []int
	for _, p := range b.Parts {
		all = append(all, p.Test...)
	}
	slices.Sort(all)
	return data.Pick(b.testList(), slices.Compact(all))
}

// openExams opens the data of every evaluation set: the classes of the whole set that data.classes leaves out, and with
// them all test images of the base classes (engine.BaseToNew), the domains that partition.leave_out leaves out with all
// their images, and other sets.
func (b *Built) openExams(ctx context.Context, whole *data.Set, progress Progress) error {
	if part, other := b.Config.Data.Classes, map[string]string{record.BaseSet: record.NewSet,
		record.NewSet: record.BaseSet}; part != allClasses {
		half, err := partition.ClassSubset(whole, other[part])
		if err != nil {
			return err
		}
		p, err := of(other[part], half)
		if err != nil {
			return err
		}
		if part == record.BaseSet {
			b.papers = append(b.papers, paper{name: part, classes: b.Set.Classes, examples: b.tested()})
		}
		b.papers = append(b.papers, p)
	}
	left, err := partition.LeftOut(b.Config.Partition, b.Set)
	if err != nil {
		return err
	}
	for _, d := range left {
		train, val, test := d.Of(b.Set)
		p := paper{name: d.Domain, classes: b.Set.Classes, examples: slices.Concat(train, val, test)}
		if len(p.examples) == 0 {
			return fmt.Errorf("exam %s: the domain has no images", d.Domain)
		}
		b.papers = append(b.papers, p)
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
		if err := b.sift(ctx, s, progress); err != nil {
			return fmt.Errorf("eval.sets: %s: %w", name, err)
		}
		p, err := of(name, s)
		if err != nil {
			return err
		}
		p.template, p.notes = s.Template, s.Notes
		b.papers = append(b.papers, p)
	}
	return nil
}

// exams computes the features of all exams.
func (b *Built) exams(ctx context.Context, x features.Extractor) error {
	b.Engine.EvaluationSets = nil
	for _, p := range b.papers {
		e := spec.EvaluationSet{Name: p.name, Template: p.template, Test: map[string]method.Data{}}
		if !slices.Equal(p.classes, b.Set.Classes) {
			e.Classes = p.classes
		}
		for _, f := range b.Bundles {
			rows, err := b.featuresOf(ctx, x, f, p.examples, 1)
			if err != nil {
				return fmt.Errorf("exam %s: %w", p.name, err)
			}
			e.Test[f.Name] = rows
		}
		b.Engine.EvaluationSets = append(b.Engine.EvaluationSets, e)
	}
	return nil
}
