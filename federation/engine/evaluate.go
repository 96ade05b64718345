package engine

import (
	"context"
	"strconv"

	"promptfed/federation/method"
)

// adapt tests the clients that never train, after each number of steps. What counts is what each has of its own after
// them.
func (s *Server) adapt(ctx context.Context, test Order, rec *Record) error {
	view := method.PersonalView
	if !s.has.Personal {
		view = method.GlobalView
	}
	for _, steps := range s.Evaluate.NewSteps {
		o := test
		o.Kind, o.Steps, o.Clients = Adapt, steps, s.Plan.New
		replies, err := s.Cohort.Run(ctx, o)
		if err != nil {
			return err
		}
		if rec.NewClients == nil {
			rec.NewClients = map[string]Tested{}
		}
		rec.NewClients[strconv.Itoa(steps)] = tested(s.has, view, replies, o.Clients, s.Plan.Peers)
	}
	return nil
}
