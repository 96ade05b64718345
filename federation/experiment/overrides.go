package experiment

import (
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
)

// Overrides is the section train.each: lists with an entry for each client, repeated if there are more clients; empty
// for equal clients.
type Overrides struct {
	Epochs []int `config:"epochs" in:"1.." help:"epochs of each client, in place of train.epochs"`
	Batch  []int `config:"batch" in:"1.." help:"batch of each client, in place of train.batch"`
	Steps  []int `config:"steps" in:"0.." help:"most steps of each client in a round; 0: no limit"`
}

// perClient returns the entries as the engine repeats them.
func (e Overrides) perClient(clients int) []spec.Overrides {
	if len(e.Epochs)+len(e.Batch)+len(e.Steps) == 0 {
		return nil
	}
	at := func(list []int, i int) int {
		if len(list) == 0 {
			return 0
		}
		return list[i%len(list)]
	}
	out := make([]spec.Overrides, clients)
	for i := range out {
		out[i] = spec.Overrides{Epochs: at(e.Epochs, i), Batch: at(e.Batch, i), Steps: at(e.Steps, i)}
	}
	return out
}

// centralise assigns the training examples of all clients to client 0 and lets no other client train: the upper bound
// without federation. All clients are still tested on their own test examples, with the parameters of client 0.
func (b *Built) centralise() error {
	if !b.Config.Train.Centralised {
		return nil
	}
	switch {
	case len(b.Bundles) > 1:
		return configtags.KeyErrorf("train.centralised", "one model cannot have several backbones; name only one")
	case b.Method.View() != method.GlobalView || b.hasPrivatePrompts():
		return configtags.KeyErrorf("train.centralised", "this method tests every client with prompts of its own, "+
			"but only one client trains; use a method that tests the server's prompts, such as promptfl")
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

func (b *Built) hasPrivatePrompts() bool {
	task := spec.TaskOf(Backbone{b.Bundles[0]}, 0, len(b.Parts), len(b.Set.Classes))
	return slices.ContainsFunc(b.Method.Params(task), func(p method.Param) bool { return p.Owner == method.Private })
}

func (b *Built) trainedOn(client int) []int {
	if client == 0 && b.pooled != nil {
		return b.pooled
	}
	return b.Parts[client].Train
}
