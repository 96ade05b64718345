package experiment

import (
	"fmt"
	"slices"

	"promptfed/federation/engine/spec"
)

// Overrides is the section train.each: lists with an entry for each client, repeated when there are more clients; empty
// for all alike.
type Overrides struct {
	Epochs []int `config:"epochs" help:"epochs of each client, in place of train.epochs"`
	Batch  []int `config:"batch" help:"batch of each client, in place of train.batch"`
	Steps  []int `config:"steps" help:"most steps of each client in a round; 0: no limit"`
}

func (e Overrides) check() error {
	for _, l := range []struct {
		key   string
		list  []int
		least int
	}{{"epochs", e.Epochs, 1}, {"batch", e.Batch, 1}, {"steps", e.Steps, 0}} {
		if len(l.list) > 0 && slices.Min(l.list) < l.least {
			return fmt.Errorf("train.each.%s: %v; every entry must be %d or more", l.key, l.list, l.least)
		}
	}
	return nil
}

// perClient are the lists as the engine repeats them.
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
