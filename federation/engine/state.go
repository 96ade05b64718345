package engine

import "promptfed/runtime/tensor"

// State is what one client remembers between rounds. A State is never changed, only replaced.
type State struct {
	Private tensor.Map // its private parameters
	Own     tensor.Map // the shared parameters as it last left them
	Kept    tensor.Map // what the method kept
}

// Tensors are all that a client remembers.
func (st State) Tensors() tensor.Map {
	return tensor.Map{}.Put("private", st.Private).Put("own", st.Own).Put("kept", st.Kept)
}

// StateOf is what State.Tensors gave.
func StateOf(m tensor.Map) (State, error) {
	if err := onlyUnder(m, "private", "own", "kept"); err != nil {
		return State{}, err
	}
	return State{Private: m.Under("private"), Own: m.Under("own"), Kept: m.Under("kept")}, nil
}
