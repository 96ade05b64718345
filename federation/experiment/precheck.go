package experiment

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
	"promptfed/runtime/ort"
)

// Prechecker refuses configurations that cannot run, before any of them reads an image: prompts that do not fit a
// backbone together with the names of the classes, shared parameters of several shapes, towers that a method lacks, and
// steps that need more memory than train.memory_gb. It opens every set and every backbone once.
type Prechecker struct {
	Progress Progress // may be nil

	sets      map[string]*data.Set // nil for a set that cannot be opened, which its run says
	backbones map[string]*bundle.Bundle
	errs      map[string]error // by what decides about them
}

// Check returns the error of a configuration whose keys have been checked.
func (p *Prechecker) Check(ctx context.Context, c Config) error {
	if p.errs == nil {
		p.sets, p.backbones, p.errs = map[string]*data.Set{}, map[string]*bundle.Bundle{}, map[string]error{}
	}
	set := p.set(c)
	if set == nil {
		return nil
	}
	key := fmt.Sprint(c.Method, c.With, c.Options, c.Backbones, c.Assign, c.Partition.Clients, c.Train.Batch,
		c.Train.Loss, c.Train.Memory, c.Data)
	err, done := p.errs[key]
	if !done {
		err = p.check(ctx, c, set)
		p.errs[key] = err
	}
	return err
}

func (p *Prechecker) set(c Config) *data.Set {
	key := fmt.Sprint(c.Data)
	s, done := p.sets[key]
	if !done {
		if whole, err := sets.Open(c.Data.Config); err == nil {
			s, _ = partition.ClassSubset(whole, c.Data.Classes)
		}
		p.sets[key] = s
	}
	return s
}

func (p *Prechecker) check(ctx context.Context, c Config, set *data.Set) error {
	stack, err := methods.Resolve(c.Method, c.With, c.Options)
	if err != nil {
		return err
	}
	b := &Built{Config: c, Set: set, Method: stack.Method}
	b.Engine = &spec.Experiment{Method: b.Method, Classes: set.Classes, Template: c.Data.Template,
		Training: spec.Training{Batch: c.Train.Batch, Memory: c.Train.memory()}}
	if c.Data.Template == autoTemplate {
		b.Engine.Template = set.Template
	}
	kernels := c.Runtime.Session().WithProvider().Provider == ort.CPU
	for _, name := range c.assigned(c.Partition.Clients) {
		f, err := p.backbone(ctx, c, name)
		if err != nil {
			return err
		}
		b.Assigned = append(b.Assigned, f)
	}
	if err := b.fits(); err != nil {
		return err
	}
	for i, f := range b.Assigned {
		if slices.Index(b.Assigned, f) < i {
			continue
		}
		if _, err := b.Engine.MemoryNote(Backbone{f}, kernels); err != nil {
			return fmt.Errorf("backbone %s: %w", f.Name, err)
		}
	}
	return nil
}

// backbone opens a backbone for the loss of a configuration.
func (p *Prechecker) backbone(ctx context.Context, c Config, name string) (*bundle.Bundle, error) {
	key := name + " " + c.Train.Loss
	if p.backbones[key] == nil {
		f, err := openBackbone(ctx, c, name, p.Progress)
		if err != nil {
			return nil, err
		}
		p.backbones[key] = f
	}
	return p.backbones[key], nil
}
