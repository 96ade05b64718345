package engine

import (
	"context"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
)

// adapt tests the clients that never train, after each number of steps. What counts is what each has of its own after
// them.
func (s *Server) adapt(ctx context.Context, test message.Instruction, rec *record.Record) error {
	view := method.PersonalView
	if !s.has.Personal {
		view = method.GlobalView
	}
	for _, steps := range s.Evaluate.NewSteps {
		o := test
		o.Kind, o.Steps, o.Clients = message.Adapt, steps, s.Plan.New
		replies, err := s.Cohort.Run(ctx, o)
		if err != nil {
			return err
		}
		if rec.NewClients == nil {
			rec.NewClients = map[string]record.SetResult{}
		}
		rec.NewClients[strconv.Itoa(steps)] = record.SummariseSet(s.has, view, replies, o.Clients, s.Plan.Infos)
	}
	return nil
}
