package message

import "promptfed/runtime/tensor"

// ClientState holds the state of one client between rounds. A ClientState is never changed, only replaced.
type ClientState struct {
	Private tensor.Map // its private parameters
	Own     tensor.Map // the shared parameters as it last left them
	Method  tensor.Map // what the method kept
}

// Tensors are all that a client remembers.
func (st ClientState) Tensors() tensor.Map {
	return tensor.Map{}.Put("private", st.Private).Put("own", st.Own).Put("kept", st.Method)
}

// ParseClientState reads what ClientState.Tensors returned.
func ParseClientState(m tensor.Map) (ClientState, error) {
	if err := onlyUnder(m, "private", "own", "kept"); err != nil {
		return ClientState{}, err
	}
	return ClientState{Private: m.WithoutPrefix("private"), Own: m.WithoutPrefix("own"),
		Method: m.WithoutPrefix("kept")}, nil
}
