package engine

import (
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
	"strconv"
)

// Untrained are the parameters that a client has before round 0, by the names of PromptsFile.
func (e *Experiment) Untrained(c *Client) (tensor.Map, error) {
	members := e.members(nil)
	s := &Server{Method: e.Method, Plan: e.plan(members)}
	if err := s.start(e.task(e.Clients[0])); err != nil {
		return nil, err
	}
	out := tensor.Map{}.Put("shared", s.Global.Shared).Put(downFolder, e.sent(&s.Global, members))
	for _, p := range e.Method.Params(e.task(c)) {
		if p.Owner == method.Private {
			out["client/"+strconv.Itoa(c.ID)+"/private/"+p.Name] = method.Draw(e.Plan.Seed, c.ID, p.Name, p.Shape,
				p.Std)
		}
	}
	return out, nil
}
