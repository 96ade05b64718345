package engine

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
)

func (s *Server) testing(ctx context.Context, rec *record.Record) error {
	g, e := &s.Global, s.Evaluate
	test := message.Instruction{Kind: message.Test, Round: g.Round, Clients: s.Plan.Participants(),
		Total: s.Plan.Clients, Shared: g.Shared, Broadcast: g.Broadcast, PerClient: g.PerClient}
	if e.Validate {
		o := test
		o.Kind = message.Validate
		replies, err := s.Cohort.Run(ctx, o)
		if err != nil {
			return err
		}
		rec.Validation = s.validation(replies)
	}
	records := append(slices.Clone(s.journal.Records), *rec)
	if (e.BestVal || e.Patience > 0) && record.BestVal(records, s.view) < 0 {
		return record.ErrNoValidation
	}
	result := e.Result(records, s.view, s.Plan.Rounds)
	test.Confusion, test.Classes = result && e.Confusion, g.Classes
	replies, err := s.Cohort.Run(ctx, test)
	if err != nil {
		return err
	}
	rec.Score(s.has, s.view, replies, test.Clients, s.Plan.Infos)
	if test.Confusion {
		s.confusion = record.ConfusionOf(g.Round, g.Classes, replies)
	}
	test.Confusion, test.Classes = false, 0
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

// validation summarises the replies of clients that have validation data; nil if no client has any.
func (s *Server) validation(replies []message.Reply) *record.Validation {
	replies = slices.DeleteFunc(slices.Clone(replies), func(r message.Reply) bool { return r.Scores.Examples == 0 })
	if len(replies) == 0 {
		return nil
	}
	t := record.SummariseSet(s.has, s.view, replies, s.Plan.Participants(), s.Plan.Infos)
	return &record.Validation{Evaluations: record.Evaluations{Global: t.Evaluations.Global.OnValidation(),
		Personal: t.Evaluations.Personal.OnValidation()}, Clients: t.Answered, Examples: t.Sizes}
}

// adapt tests the clients that never train, after each number of steps, with the parameters that each client has after
// its steps.
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

func (s *Server) evaluateSets(ctx context.Context, test message.Instruction, rec *record.Record) error {
	for _, x := range s.EvaluationSets {
		test.Set = x.Name
		replies, err := s.Cohort.Run(ctx, test)
		if err != nil {
			return err
		}
		if rec.EvaluationSets == nil {
			rec.EvaluationSets = map[string]record.SetResult{}
		}
		rec.EvaluationSets[x.Name] = record.SummariseSet(s.has, s.view, replies, test.Clients, s.Plan.Infos)
	}
	return nil
}

// keepConfusion writes the confusion matrix of a round that may be the result, before the round is committed.
func (s *Server) keepConfusion(round int) error {
	if s.confusion == nil || s.confusion.Round != round {
		return nil
	}
	s.confusion.Classes = s.Classes
	if s.Dir == "" {
		return nil
	}
	return atomicfile.Write(filepath.Join(s.Dir, record.ConfusionFile), atomicfile.JSON(s.confusion, ""))
}
