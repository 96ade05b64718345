package engine

import (
	"context"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"slices"
)

// testing does all the tests of a round.
func (s *Server) testing(ctx context.Context, rec *record.Record) error {
	g, e := &s.Global, s.Evaluate
	test := message.Instruction{Kind: message.Test, Round: g.Round, Clients: s.Plan.Known(), Total: s.Plan.Clients,
		Shared:    g.Shared,
		Broadcast: g.Broadcast, PerClient: g.PerClient}
	if e.Validate {
		o := test
		o.Kind = message.Validate
		replies, err := s.Cohort.Run(ctx, o)
		if err != nil {
			return err
		}
		rec.Validation = s.validation(replies)
	}
	records := append(slices.Clone(s.Past), *rec)
	if (e.BestVal || e.Patience > 0) && record.BestVal(records, s.view) < 0 {
		return record.ErrNoValidation
	}
	result := e.Result(records, s.view, s.Plan.Rounds)
	test.Confusion = result && e.Confusion
	replies, err := s.Cohort.Run(ctx, test)
	if err != nil {
		return err
	}
	rec.Score(s.has, s.view, replies, test.Clients, s.Plan.Infos)
	if test.Confusion {
		s.Confusion = record.ConfusionOf(g.Round, g.Classes, replies)
	}
	test.Confusion = false
	if result || e.SetsEvery > 0 && (g.Round+1)%e.SetsEvery == 0 {
		if err := s.evaluateSets(ctx, test, rec); err != nil {
			return err
		}
		rec.BaseToNew = rec.Generalise()
	}
	if !result || len(s.Plan.New) == 0 {
		return nil
	}
	return s.adapt(ctx, test, rec)
}

// validation puts the replies of clients that have validation data together; nil where nobody has any.
func (s *Server) validation(replies []message.Reply) *record.Validation {
	replies = slices.DeleteFunc(slices.Clone(replies), func(r message.Reply) bool { return r.Scores.Examples == 0 })
	if len(replies) == 0 {
		return nil
	}
	t := record.SummariseSet(s.has, s.view, replies, s.Plan.Known(), s.Plan.Infos)
	return &record.Validation{Global: record.Summarised(t.Evaluations.Global),
		Personal: record.Summarised(t.Evaluations.Personal),
		Clients:  t.Answered, Examples: t.Sizes}
}
