package experiment

import (
	"errors"
	"slices"

	"promptfed/federation/method"
)

// centralise gives client 0 the training examples of all clients and lets nobody else train: the upper bound without
// federation. All clients are still tested on their own test examples, with what client 0 learned.
func (b *Built) centralise() error {
	if !b.Config.Train.Centralised {
		return nil
	}
	switch {
	case len(b.Bundles) > 1:
		return errors.New("train.centralised: one model cannot have several backbones; name only one")
	case b.Method.View() != method.GlobalView || b.hasPrivatePrompts():
		return errors.New("train.centralised: this method tests every client with prompts of its own, but only one " +
			"client trains; use a method that tests the server's prompts, such as promptfl")
	}
	var everything []int
	for _, p := range b.Parts {
		everything = append(everything, p.Train...)
	}
	slices.Sort(everything)
	b.pooled = slices.Compact(everything)
	b.Engine.Plan.Trainers = []int{0}
	return nil
}

// hasPrivatePrompts tells whether clients have parameters that nobody else gets.
func (b *Built) hasPrivatePrompts() bool {
	task := Backbone{b.Bundles[0]}.Task()
	task.Clients, task.Classes = len(b.Parts), len(b.Set.Classes)
	return slices.ContainsFunc(b.Method.Params(task), func(p method.Param) bool { return p.Owner == method.Private })
}

// trainedOn are the training examples of a client.
func (b *Built) trainedOn(client int) []int {
	if client == 0 && b.pooled != nil {
		return b.pooled
	}
	return b.Parts[client].Train
}
