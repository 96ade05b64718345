package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// evaluate tests the clients after a round: on validation data, on their own test data, and in some rounds on the
// evaluation sets and after steps of clients that never train.
func (s *server) evaluate(ctx context.Context, rec *record.Record) error {
	global, testPlan := &s.global, s.experiment.Evaluate
	test := s.instructionTo(message.Test, s.plan.Participants())
	if testPlan.Validate {
		instruction := test
		instruction.Kind = message.Validate
		replies, err := s.cohort.Run(ctx, instruction)
		if err != nil {
			return err
		}
		rec.Validation = s.validation(replies)
	}

	records := append(slices.Clone(s.journal.Records), *rec)
	if (testPlan.BestVal || testPlan.Patience > 0) && record.BestVal(records, s.view) < 0 {
		return record.ErrNoValidation
	}

	result := testPlan.Result(records, s.view, s.plan.Rounds)
	test.Confusion, test.Classes = result && testPlan.Confusion, global.Classes
	replies, err := s.cohort.Run(ctx, test)
	if err != nil {
		return err
	}

	rec.Score(s.has, s.view, replies, test.Clients, s.plan.Infos)
	records[len(records)-1] = *rec
	if len(s.plan.Attackers) == 0 && record.Falls(records, s.view, s.journal.ZeroShot) {
		rec.Warnings = append(rec.Warnings, "accuracy is below zero-shot accuracy and does not rise: "+
			s.experiment.Remedy)
	}

	if test.Confusion {
		s.confusion = record.ConfusionOf(global.Round, global.Classes, replies)
	}

	test.Confusion, test.Classes = false, 0
	if result || testPlan.TestsSets(global.Round) {
		if err := s.evaluateSets(ctx, test, rec); err != nil {
			return err
		}
		rec.BaseToNew = rec.Generalise()
	}

	if !result || len(s.plan.New) == 0 {
		return nil
	}

	return s.adapt(ctx, test, rec)
}

// validation summarises the replies of clients that have validation data; nil if no client has any.
func (s *server) validation(replies []message.Reply) *record.Validation {
	replies = slices.DeleteFunc(slices.Clone(replies), func(r message.Reply) bool { return r.Scores.Examples == 0 })
	if len(replies) == 0 {
		return nil
	}
	t := record.SummariseSet(s.has, s.view, replies, s.plan.Participants(), s.plan.Infos)
	return &record.Validation{Evaluations: record.Evaluations{Global: t.Evaluations.Global.OnValidation(),
		Personal: t.Evaluations.Personal.OnValidation()}, Clients: t.Answered, Examples: t.Sizes}
}

// adapt tests the clients that never train, after each number of steps, with the parameters that each client has after
// its steps.
func (s *server) adapt(ctx context.Context, test message.Instruction, rec *record.Record) error {
	view := method.PersonalView
	if !s.has.Personal {
		view = method.GlobalView
	}

	test.Kind, test.Clients = message.Adapt, s.plan.New
	for _, steps := range s.experiment.Evaluate.NewSteps {
		test.Steps = steps
		if err := s.testInto(ctx, &rec.NewClients, strconv.Itoa(steps), test, view); err != nil {
			return err
		}
	}

	return nil
}

func (s *server) evaluateSets(ctx context.Context, test message.Instruction, rec *record.Record) error {
	for _, x := range s.experiment.EvaluationSets {
		test.Set = x.Name
		if err := s.testInto(ctx, &rec.EvaluationSets, x.Name, test, s.view); err != nil {
			return err
		}
	}
	return nil
}

// testInto adds the result of a test to the results of a record.
func (s *server) testInto(ctx context.Context, results *map[string]record.SetResult, name string,
	test message.Instruction, view method.View) error {
	replies, err := s.cohort.Run(ctx, test)
	if err != nil {
		return err
	}

	if *results == nil {
		*results = map[string]record.SetResult{}
	}

	(*results)[name] = record.SummariseSet(s.has, view, replies, test.Clients, s.plan.Infos)
	return nil
}

// keepConfusion writes the confusion matrix of a round that may be the result, before the round is committed.
func (s *server) keepConfusion(round int) error {
	if s.confusion == nil || s.confusion.Round != round {
		return nil
	}

	s.confusion.Classes = s.experiment.Classes
	if s.settings.Dir == "" {
		return nil
	}

	return atomicfile.Write(filepath.Join(s.settings.Dir, record.ConfusionFile), atomicfile.JSON(s.confusion, ""))
}

// bestPath returns the file with the prompts of the best round, in the form of PromptsFile.
func bestPath(dir string, round int) string {
	return filepath.Join(dir, record.CheckFolder, fmt.Sprintf("best-%06d.safetensors", round))
}

// keepBest writes the prompts of a round that is the best so far, before the round is committed.
func (s *server) keepBest(rec record.Record) error {
	records := append(slices.Clone(s.journal.Records), rec)
	if !s.experiment.Evaluate.BestVal || record.BestVal(records, s.view) != len(records)-1 {
		return nil
	}

	path := bestPath(s.settings.Dir, rec.Round)
	best, err := s.writePrompts(path)
	s.journal.Best = best
	if err == nil && s.settings.Dir != "" {
		s.best, err = state.FileSum(path)
	}

	return err
}

// writePrompts writes the prompts of all clients, in the form of PromptsFile. It returns those of a run without a
// folder.
func (s *server) writePrompts(path string) (tensor.Map, error) {
	participants := s.cohort.Participants()
	parts := state.Sections(s.experiment, &s.global, s.store, participants)
	if s.settings.Dir == "" {
		return state.LoadSections(parts)
	}

	meta, err := state.Metadata(s.experiment, participants, s.experiment.Clients)
	if err != nil {
		return nil, err
	}

	return nil, state.WriteSections(path, parts, meta)
}

// sweepBest removes the files of earlier best rounds.
func (s *server) sweepBest() {
	best := record.BestVal(s.journal.Records, s.view)
	if !s.experiment.Evaluate.BestVal || s.settings.Dir == "" || best < 0 {
		return
	}

	folder, keep := filepath.Split(bestPath(s.settings.Dir, s.journal.Records[best].Round))
	files, _ := fs.Glob(os.DirFS(folder), "best-*.safetensors")
	for _, name := range files {
		if name != keep {
			os.Remove(filepath.Join(folder, name))
		}
	}
}

// checkBest refuses to resume a run whose best round was not kept, or whose file has other bytes than the checkpoint
// says.
func (s *server) checkBest() error {
	records := s.journal.Records
	best := record.BestVal(records, s.view)
	if !s.experiment.Evaluate.BestVal || s.settings.Dir == "" || len(records) == 0 {
		return nil
	}

	if best < 0 {
		return errors.New("cannot resume: the rounds so far were not tested on validation data; set eval.select to " +
			"last, or start again in another folder")
	}

	path := bestPath(s.settings.Dir, records[best].Round)
	sum, err := state.FileSum(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot resume: the parameters of round %d, the best so far, were not kept, since "+
			"eval.select was not best-val; set it to last, or start again in another folder", records[best].Round+1)
	}

	if err == nil && sum != s.best {
		return fmt.Errorf("cannot resume: %s is damaged: it does not match its checksum; restore a copy or start "+
			"again in another folder", path)
	}

	return err
}
