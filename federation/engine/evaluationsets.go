package engine

import (
	"context"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
)

// evaluateSets gives the evaluation sets after the last round.
func (s *Server) evaluateSets(ctx context.Context, test message.Instruction, rec *record.Record) error {
	for _, name := range s.EvaluationSets {
		test.Set = name
		replies, err := s.Cohort.Run(ctx, test)
		if err != nil {
			return err
		}
		if rec.EvaluationSets == nil {
			rec.EvaluationSets = map[string]record.SetResult{}
		}
		rec.EvaluationSets[name] = record.SummariseSet(s.has, s.view, replies, test.Clients, s.Plan.Infos)
	}
	return nil
}
