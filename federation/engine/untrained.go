package engine

import (
	"strconv"

	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Untrained are the parameters that a client has before round 0, by the names of PromptsFile.
func Untrained(e *spec.Experiment, c *spec.Client) (tensor.Map, error) {
	participants := participantsOf(e, nil)
	s := &Server{Method: e.Method, Plan: e.PlanFor(participants)}
	if err := s.start(e.Task(e.Clients[0])); err != nil {
		return nil, err
	}
	out := tensor.Map{}.Put("shared", s.Global.Shared).Put(state.DownFolder, state.Sent(e, &s.Global, participants))
	for _, p := range e.Method.Params(e.Task(c)) {
		if p.Owner == method.Private {
			out["client/"+strconv.Itoa(c.ID)+"/private/"+p.Name] = p.Draw(e.Plan.Seed, c.ID)
		}
	}
	return out, nil
}
