package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/runtime/atomicfile"
)

// validation puts the replies of clients that have validation data together; nil where nobody has any.
func (s *Server) validation(replies []Reply) *Validation {
	replies = slices.DeleteFunc(slices.Clone(replies), func(r Reply) bool { return r.Scores.Examples == 0 })
	if len(replies) == 0 {
		return nil
	}
	t := tested(s.has, s.view, replies, s.Plan.known(), s.Plan.Peers)
	return &Validation{Global: brief(t.Evaluations.Global), Personal: brief(t.Evaluations.Personal),
		Clients: t.Answered, Examples: t.sizes}
}

// bestPrefix and bestSuffix surround the round in the name of the file that keeps what the best round left, in the form
// of PromptsFile.
const (
	bestPrefix = "best-"
	bestSuffix = ".safetensors"
)

func bestPath(dir string, round int) string {
	return filepath.Join(dir, CheckFolder, fmt.Sprintf("%s%06d%s", bestPrefix, round, bestSuffix))
}

// keepBest writes what the round leaves if it is the best so far, before the round counts.
func (e *Experiment) keepBest(set Settings, s *Server, store *Store, j *journal, rec Record) error {
	records := append(slices.Clone(j.Records), rec)
	if !e.Evaluate.BestVal || bestVal(records, s.view) != len(records)-1 {
		return nil
	}
	members := e.members(set.Remote)
	parts := e.parts(&s.Global, store, members)
	if set.Dir == "" {
		var err error
		j.best, err = loaded(parts)
		return err
	}
	meta, err := e.about(members)
	if err != nil {
		return err
	}
	return writeParts(bestPath(set.Dir, rec.Round), parts, meta)
}

// sweepBest removes what older best rounds left.
func (e *Experiment) sweepBest(set Settings, s *Server, j *journal) {
	best := bestVal(j.Records, s.view)
	if !e.Evaluate.BestVal || set.Dir == "" || best < 0 {
		return
	}
	keep := filepath.Base(bestPath(set.Dir, j.Records[best].Round))
	entries, _ := os.ReadDir(filepath.Join(set.Dir, CheckFolder))
	for _, f := range entries {
		if strings.HasPrefix(f.Name(), bestPrefix) && strings.HasSuffix(f.Name(), bestSuffix) && f.Name() != keep {
			os.Remove(filepath.Join(set.Dir, CheckFolder, f.Name()))
		}
	}
}

// checkBest refuses to go on with a run whose best round was not kept.
func (e *Experiment) checkBest(set Settings, s *Server, j *journal) error {
	best := bestVal(j.Records, s.view)
	if !e.Evaluate.BestVal || set.Dir == "" || len(j.Records) == 0 {
		return nil
	}
	if best < 0 {
		return errors.New("cannot resume: the rounds so far were not tested on validation data; set eval.select to " +
			"last, or start again in another folder")
	}
	_, err := os.Stat(bestPath(set.Dir, j.Records[best].Round))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot resume: what round %d left, the best so far, was not kept, as without eval.select: "+
			"best-val; set it to last, or start again in another folder",
			j.Records[best].Round)
	}
	return err
}

// takeBest makes what the selected round left the run's prompts.
func takeBest(set Settings, round int) error {
	in, err := os.Open(bestPath(set.Dir, round))
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Write(filepath.Join(set.Dir, PromptsFile), func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// testing does all the tests of a round.
func (s *Server) testing(ctx context.Context, rec *Record) error {
	g, e := &s.Global, s.Evaluate
	test := Order{Kind: Test, Round: g.Round, Clients: s.Plan.known(), Of: s.Plan.Clients, Shared: g.Shared,
		Down: g.Broadcast, Each: g.PerClient}
	if e.Validate {
		o := test
		o.Kind = Validate
		replies, err := s.Cohort.Run(ctx, o)
		if err != nil {
			return err
		}
		rec.Validation = s.validation(replies)
	}
	records := append(slices.Clone(s.Past), *rec)
	if (e.BestVal || e.Patience > 0) && bestVal(records, s.view) < 0 {
		return ErrNoValidation
	}
	result := e.result(records, s.view, s.Plan.Rounds)
	test.Counts = result && e.Confusion
	replies, err := s.Cohort.Run(ctx, test)
	if err != nil {
		return err
	}
	rec.score(s.has, s.view, replies, test.Clients, s.Plan.Peers)
	if test.Counts {
		s.Confusion = confusionOf(g.Round, g.Classes, replies)
	}
	test.Counts = false
	if result || e.SetsEvery > 0 && (g.Round+1)%e.SetsEvery == 0 {
		if err := s.examine(ctx, test, rec); err != nil {
			return err
		}
		rec.BaseToNew = rec.baseToNew()
	}
	if !result || len(s.Plan.New) == 0 {
		return nil
	}
	return s.adapt(ctx, test, rec)
}
