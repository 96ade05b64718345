package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/attack"
	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/models/preprocess"
)

// checkEval returns an error for a mistake in the section eval.
func (c Config) checkEval() error {
	eval := c.Eval
	fresh, clients := eval.NewClients, c.Partition.Clients
	errs := []error{configtags.Check("eval.", eval), configtags.Need(eval.Validate || !c.validated(), "eval.validate",
		"eval.select: best-val and train.patience need the validation accuracy; set it to true"),
		configtags.Need(eval.SetsEvery >= 0 && (eval.Every <= 0 || eval.SetsEvery%eval.Every == 0), "eval.sets_every",
			"%d; it must be a multiple of eval.every, which is %d, or 0 for the last round only", eval.SetsEvery,
			eval.Every),
		configtags.Need(fresh == 0 || fresh > 0 && fresh < clients, "eval.new_clients",
			"%d of %d clients; it must be at least 0, and one client must train", fresh, clients),
		configtags.Need(fresh <= 0 || !c.Train.Centralised, "eval.new_clients", "with train.centralised one client "+
			"trains on all data, so that no client is new; use only one of the two")}
	for i, k := range eval.NewSteps {
		errs = append(errs, configtags.Need(k >= 0 && k <= maxNewSteps && !slices.Contains(eval.NewSteps[:i], k),
			"eval.new_steps", "%d; each number must lie between 0 and %d and occur once", k, maxNewSteps))
	}

	for i, name := range eval.Sets {
		errs = append(errs, configtags.Need(!slices.Contains(eval.Sets[:i], name), "eval.sets", "%s occurs twice; "+
			"list every set once", name))
	}

	return errors.Join(append(errs, configtags.Need(fresh <= 0 || len(eval.NewSteps) > 0, "eval.new_steps",
		"empty; give numbers of steps, such as [0, 10]"))...)
}

const maxNewSteps = 100_000

// validated reports whether a decision depends on validation data.
func (c Config) validated() bool { return c.Eval.Select == BestVal || c.Train.Patience > 0 }

// split partitions the examples, and takes validation data from training data if the configuration says so.
func (d *Data) split(p partition.Config) (err error) {
	config := d.config
	if d.Parts, err = partition.Split(p, d.Set, config.Data.Shots, config.Seed); err != nil {
		return err
	}

	if n := config.Eval.NewClients; n > 0 && n < len(d.Parts) {
		d.Parts = holdOutClients(d.Parts, n, config.Seed)
	}

	if config.Data.ValShare > 0 {
		set := *d.Set
		if err := partition.CutValidation(&set, d.Parts, config.Data.ValShare, config.Seed); err != nil {
			return err
		}
		d.Set = &set
	}

	return nil
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
func (d *Data) testedImages() []data.Example {
	var all []int
	for _, p := range d.Parts {
		all = append(all, p.Test...)
	}
	slices.Sort(all)
	return data.Pick(d.testList(), slices.Compact(all))
}

// openEvaluationSets opens the data of every evaluation set: the classes of the whole set that data.classes leaves out,
// with all test images of the base classes (record.BaseToNew); the domains that partition.leave_out leaves out, with
// all their images; and other sets.
func (d *Data) openEvaluationSets(ctx context.Context, whole *data.Set, progress Progress) error {
	if part, other := d.config.Data.Classes, map[string]string{metrics.BaseSet: metrics.NewSet,
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
			d.evaluationSets = append(d.evaluationSets, evaluationSet{name: part, classes: d.Set.Classes,
				examples: d.testedImages()})
		}
		d.evaluationSets = append(d.evaluationSets, p)
	}

	left, err := partition.LeftOut(d.config.Partition, d.Set)
	if err != nil {
		return err
	}

	for _, domain := range left {
		if metrics.Reserved(domain.Domain) {
			return configtags.KeyErrorf("partition.leave_out", "%s is the name of an evaluation set of promptfed's "+
				"own: rename the domain's folder", domain.Domain)
		}
		train, val, test := domain.Of(d.Set)
		p := evaluationSet{name: domain.Domain, classes: d.Set.Classes, examples: slices.Concat(train, val, test)}
		if len(p.examples) == 0 {
			return fmt.Errorf("evaluation set %s: the domain has no images", domain.Domain)
		}
		d.evaluationSets = append(d.evaluationSets, p)
	}

	for _, name := range d.config.Eval.Sets {
		c := d.config.Data.Config
		c.Set, c.Split, c.ClassNames, c.Layout = name, "given", nil, sets.Defaults().Layout
		if d.config.Eval.SetsRoot != "" {
			c.Root = d.config.Eval.SetsRoot
		}

		c.Generator.Classes = nil
		set, err := d.openImages(c)
		if err != nil {
			return configtags.KeyErrorf("eval.sets", "%w", err)
		}

		if err := d.dropUnreadable(ctx, set, progress); err != nil {
			return configtags.KeyErrorf("eval.sets", "%s: %w", name, err)
		}

		p, err := newEvaluationSet(name, set)
		if err != nil {
			return err
		}

		p.template, p.notes, p.other = set.Template, set.Notes, true
		d.Set.Skipped = append(d.Set.Skipped, set.Skipped...)
		d.evaluationSets = append(d.evaluationSets, p)
	}

	return nil
}

// openTriggered adds two evaluation sets, of all test images of other classes than the backdoor's target. One has the
// trigger and the target for its labels, so that its accuracy is the attack's success rate. The other has the same
// images without the trigger.
func (d *Data) openTriggered() error {
	config := d.config.Attack
	if config.Kind != attack.Backdoor {
		return nil
	}

	if config.Target < 0 || config.Target >= len(d.Set.Classes) {
		return configtags.KeyErrorf("attack.target", "%d is not one of the %d classes, which are numbered from 0",
			config.Target, len(d.Set.Classes))
	}

	with := evaluationSet{name: metrics.TriggeredSet, classes: d.Set.Classes}
	without := evaluationSet{name: metrics.UntriggeredSet, classes: d.Set.Classes}
	for _, e := range d.testedImages() {
		if e.Label == config.Target {
			continue
		}
		with.examples = append(with.examples, config.Triggered(e, preprocess.Decode))
		e.Label = config.Target
		without.examples = append(without.examples, e)
	}

	if len(with.examples) == 0 {
		return configtags.KeyErrorf("attack.target", "all test images of a backdoor are of this class; choose another")
	}

	d.evaluationSets = append(d.evaluationSets, with, without)
	return nil
}
