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
	sets      memo[*data.Set]      // nil for a set that cannot be opened
	backbones memo[*bundle.Bundle] // nil for a backbone that cannot be opened here
	errs      memo[error]
}

// memo holds results by what decides about them.
type memo[T any] map[string]T

// get returns the result for some values, which it computes once.
func (m *memo[T]) get(compute func() T, values ...any) T {
	if *m == nil {
		*m = memo[T]{}
	}

	key := fmt.Sprint(values...)
	result, done := (*m)[key]
	if !done {
		result = compute()
		(*m)[key] = result
	}

	return result
}

// Check returns the error of a configuration whose keys have been checked. It leaves sets and backbones that cannot be
// opened, or are not downloaded yet, to the run.
func (p *Prechecker) Check(config Config) error {
	set := p.sets.get(func() (part *data.Set) {
		if whole, err := sets.Open(config.Data.Config); err == nil {
			part, _ = partition.ClassSubset(whole, config.Data.Classes)
		}
		return part
	}, config.Data)
	if set == nil {
		return nil
	}

	var assigned []*bundle.Bundle
	names := config.assigned(config.Partition.Clients)
	for _, name := range names {
		model := p.backbones.get(func() *bundle.Bundle {
			found, _ := bundle.Find(name, config.Runtime.Models)
			if found != nil {
				found.Sigmoid = config.Train.Loss == sigmoidLoss
			}
			return found
		}, name, config.Runtime.Models, config.Train.Loss)
		if model == nil {
			return nil
		}
		assigned = append(assigned, model)
	}

	return p.errs.get(func() error { return precheck(config, set, assigned) }, config.Method, config.With,
		config.Options, names, config.Runtime, config.Train.Batch, config.Train.Each, config.Train.Loss,
		config.Train.Memory, config.Data)
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
