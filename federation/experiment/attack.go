package experiment

import (
	"context"
	"encoding/json"
	"errors"

	"promptfed/federation/attack"
	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/spec"
	"promptfed/models/bundle"
	"promptfed/models/preprocess"
	"promptfed/runtime/tensor"
)

// attackTerm returns what distinguishes attacked runs in the fingerprint, like an option of the method.
func (c Config) attackTerm() string {
	if !c.Attack.Enabled() {
		return ""
	}
	text, err := json.Marshal(c.Attack)
	if err != nil { // of numbers and texts there is none
		panic(err)
	}
	return " attack=" + string(text)
}

// noAttack refuses an attack by real clients.
func (c Config) noAttack() error {
	if !c.Attack.Enabled() {
		return nil
	}
	return &configtags.KeyError{Key: "attack.kind", Err: errors.New("attack: attacks are simulated by promptfed run " +
		"only (also with --cluster), not by serve and join; set attack.kind: none")}
}

// openAttack draws the attackers among the clients that train.
func (b *Built) openAttack() error {
	c := b.Config.Attack
	if !c.Enabled() {
		return nil
	}
	if b.Config.Train.Centralised {
		return &configtags.KeyError{Key: "attack.kind", Err: errors.New("attack: train.centralised has one client, " +
			"which would be the only attacker; use only one of the two")}
	}
	may := b.Engine.Plan.Trainers
	if len(may) == 0 {
		may = tensor.Indices(len(b.Parts))
	}
	attackers, err := c.Attackers(may, b.Config.Seed)
	if err != nil {
		return err
	}
	b.Engine.Attack = attack.Attack{Config: c, Attackers: attackers, Seed: b.Config.Seed}
	b.Engine.Plan.Attackers = attackers
	return nil
}

// openTriggered adds two evaluation sets, of all test images of other classes than the backdoor's target. One has the
// trigger and the target for its labels, so that its accuracy is the attack's success rate. The other has the same
// images without the trigger.
func (b *Built) openTriggered() error {
	c := b.Config.Attack
	if c.Kind != attack.Backdoor {
		return nil
	}
	if c.Target < 0 || c.Target >= len(b.Set.Classes) {
		return configtags.KeyErrorf("attack.target", "%d is not one of the %d classes, which are numbered from 0",
			c.Target, len(b.Set.Classes))
	}
	with := evaluationSet{name: metrics.TriggeredSet, classes: b.Set.Classes}
	without := evaluationSet{name: metrics.UntriggeredSet, classes: b.Set.Classes}
	for _, e := range b.testedImages() {
		if e.Label == c.Target {
			continue
		}
		with.examples = append(with.examples, c.Triggered(e, preprocess.Decode))
		e.Label = c.Target
		without.examples = append(without.examples, e)
	}
	if len(with.examples) == 0 {
		return &configtags.KeyError{Key: "attack.target", Err: errors.New("attack: backdoor: all test images are of " +
			"the class attack.target; choose another")}
	}
	b.evaluationSets = append(b.evaluationSets, with, without)
	return nil
}

// labels returns the labels that a client trains on, before an attack, and how many of them label noise made wrong.
func (b *Built) labels(client int) (labels []int64, wrong int) {
	for _, i := range b.trainedOn(client) {
		labels = append(labels, int64(b.trainList()[i].Label))
	}
	noise := b.Config.Data.LabelNoise
	if b.of > 0 || !noise.Noisy(len(b.Parts), b.Config.Seed)[client] {
		return labels, 0
	}
	return noise.Apply(labels, len(b.Set.Classes), b.Config.Seed, client)
}

// poisoned returns the examples with the trigger that a client of a backdoor trains on, and the indices of its own
// examples that they replace.
func (b *Built) poisoned(client int) (list []data.Example, at []int) {
	if b.Engine.Attack.Kind != attack.Backdoor {
		return nil, nil
	}
	labels, _ := b.labels(client)
	at = b.Engine.Attack.Poisoned(client, labels)
	for _, i := range at {
		e := b.trainList()[b.trainedOn(client)[i]]
		list = append(list, b.Config.Attack.Triggered(e, preprocess.Decode))
	}
	return list, at
}

// training returns the training data of a client: its part of the features of all training examples, with the labels
// and the images after label noise and an attack.
func (b *Built) training(ctx context.Context, x features.Extractor, f *bundle.Bundle, all *spec.Features,
	client int) (*spec.Features, error) {
	out := all.Pick(b.trainedOn(client))
	out.Class, _ = b.labels(client)
	out.Class = b.Engine.Attack.Labels(client, out.Class, len(b.Set.Classes))
	list, at := b.poisoned(client)
	if len(list) == 0 {
		return out, nil
	}
	poison, err := b.featuresOf(ctx, x, f, list, b.Config.Data.Views)
	if err != nil {
		return nil, err
	}
	return out.Replace(at, poison), nil
}
