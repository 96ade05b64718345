package experiment

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/engine"
	"promptfed/federation/features"
	"promptfed/federation/method"
	"promptfed/federation/sets"
)

// Exam is the section exam: what clients are tested on after the last round beside their own test data.
type Exam struct {
	Sets []string `config:"sets" help:"other sets, each with its own classes: cross-data-set transfer"`
	Root string   `config:"root" help:"folder of those sets, as data.root; empty for data.root"`
}

// paper is an exam that has been opened: its examples, and its classes where they are not the experiment's.
type paper struct {
	name     string
	classes  []string
	template string
	examples []data.Example
}

// of makes an exam of the test examples of a set.
func of(name string, s *data.Set) (paper, error) {
	p := paper{name: name, classes: s.Classes, template: s.Template, examples: s.Test}
	if s.Pool != nil {
		p.examples = s.Pool
	}
	if len(p.examples) == 0 {
		return p, fmt.Errorf("exam %s has no test images", name)
	}
	return p, nil
}

// openExams opens the data of every exam.
func (b *Built) openExams() error {
	for _, name := range b.Config.Exam.Sets {
		c := b.Config.Data.Config
		c.Set, c.Split, c.ClassNames, c.Layout = name, "given", nil, sets.Defaults().Layout
		if b.Config.Exam.Root != "" {
			c.Root = b.Config.Exam.Root
		}
		c.Drawn.Classes = nil
		s, err := sets.Open(c)
		if err != nil {
			return fmt.Errorf("exam.sets: %w", err)
		}
		p, err := of(name, s)
		if err != nil {
			return err
		}
		b.papers = append(b.papers, p)
	}
	return nil
}

// exams computes the features of all exams.
func (b *Built) exams(ctx context.Context, x features.Extractor) error {
	b.Engine.Exams = nil
	for _, p := range b.papers {
		e := engine.Exam{Name: p.name, Template: p.template, Test: map[string]method.Data{}}
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
		b.Engine.Exams = append(b.Engine.Exams, e)
	}
	return nil
}
