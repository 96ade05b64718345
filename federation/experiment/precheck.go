package experiment

import (
	"fmt"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
)

// Prechecker refuses configurations that cannot run, before any of them reads an image: prompts that do not fit a
// backbone together with the names of the classes, shared parameters of several shapes, towers that a method lacks, and
// steps that need more memory than train.memory_gb. It opens every set and every backbone once. The zero value is
// ready.
type Prechecker struct {
	sets      map[string]*data.Set // nil for a set that cannot be opened
	backbones map[string]*bundle.Bundle
	errs      map[string]error // by what decides about them
}

// Check returns the error of a configuration whose keys have been checked. It leaves sets and backbones that cannot be
// opened, or are not downloaded yet, to the run.
func (p *Prechecker) Check(config Config) error {
	if p.errs == nil {
		p.sets, p.backbones, p.errs = map[string]*data.Set{}, map[string]*bundle.Bundle{}, map[string]error{}
	}

	set := p.set(config)
	if set == nil {
		return nil
	}

	var assigned []*bundle.Bundle
	names := config.assigned(config.Partition.Clients)
	for _, name := range names {
		f := p.backbone(config, name)
		if f == nil {
			return nil
		}
		assigned = append(assigned, f)
	}

	key := fmt.Sprint(config.Method, config.With, config.Options, names, config.Runtime, config.Train.Batch,
		config.Train.Each, config.Train.Loss, config.Train.Memory, config.Data)
	err, done := p.errs[key]
	if !done {
		err = precheck(config, set, assigned)
		p.errs[key] = err
	}

	return err
}

func precheck(config Config, set *data.Set, assigned []*bundle.Bundle) error {
	stack, err := methods.Resolve(config.Method, config.With, config.Options)
	if err != nil {
		return err
	}

	experiment := config.experiment(stack.Method, set.Classes)
	if experiment.Template == autoTemplate {
		experiment.Template = set.Template
	}

	if err := fits(experiment, assigned, ClientPlace{}, stack.Options); err != nil {
		return err
	}

	for i, f := range assigned {
		if slices.Index(assigned, f) < i {
			continue
		}
		if _, err := memoryNote(experiment, f, config); err != nil {
			return err
		}
	}

	return nil
}

// set returns the set of a configuration's data with the classes of it that count; nil where it cannot be opened.
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

// backbone returns a backbone for the loss of a configuration; nil where it cannot be opened here.
func (p *Prechecker) backbone(c Config, name string) *bundle.Bundle {
	key := fmt.Sprint(name, c.Runtime.Models, c.Train.Loss)
	f, done := p.backbones[key]
	if !done {
		if f, _ = bundle.Find(name, c.Runtime.Models); f != nil {
			f.Sigmoid = c.Train.Loss == sigmoidLoss
		}
		p.backbones[key] = f
	}

	return f
}
