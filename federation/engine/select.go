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

	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
)

// Validation is what clients gave on their validation data in one round, each mean over those that have any.
type Validation struct {
	// with the server's shared parameters; absent where the method does not have it
	Global   *Brief `json:"global,omitempty"`
	Personal *Brief `json:"personal,omitempty"`
	Clients  []int  `json:"clients,omitempty"` // that lists by client are about; without it all, in order
	Examples []int  `json:"examples"`          // of each client
}

// Brief is an evaluation without its details.
type Brief struct {
	Accuracy  float64   `json:"accuracy"`     // mean over clients
	Std       float64   `json:"accuracy_std"` // over clients (population)
	PerClient []float64 `json:"per_client"`
}

// Of is one of the two evaluations.
func (v *Validation) Of(view method.View) *Brief {
	switch {
	case v == nil:
		return nil
	case view == method.PersonalView:
		return v.Personal
	}
	return v.Global
}

func brief(e *Evaluation) *Brief {
	if e == nil {
		return nil
	}
	return &Brief{e.Accuracy, e.Std, e.PerClient}
}

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

// AtBestVal is the round with the best validation accuracy, of equal ones the first, and the accuracy on test data
// there.
type AtBestVal struct {
	Round      int      `json:"round"`
	Validation float64  `json:"validation"`         // accuracy of the headline's evaluation
	Accuracy   float64  `json:"accuracy"`           // likewise, on test data
	Global     *float64 `json:"global,omitempty"`   // on test data, as far as the method has it
	Personal   *float64 `json:"personal,omitempty"` // likewise
}

// choose says which round is the result, and why the run ended.
func (s *Summary) choose(records []Record, view method.View, how Evaluate) {
	s.Select, s.Stopped = "last", how.stop(records, view)
	best := bestVal(records, view)
	if best < 0 {
		return
	}
	r := records[best]
	s.AtBestVal = &AtBestVal{Round: r.Round, Validation: r.Validation.Of(view).Accuracy, Global: r.Global,
		Personal: r.Personal}
	e := r.Evaluations.Of(view)
	if e != nil {
		s.AtBestVal.Accuracy = e.Accuracy
	}
	if !how.BestVal {
		return
	}
	s.Select = "best-val"
	if s.of(r); e != nil {
		s.Headline.of(e)
	}
}

// bestVal is the place of the record with the best validation accuracy, of equal ones the first; -1 without any.
func bestVal(records []Record, view method.View) int {
	best := -1
	for i, r := range records {
		if v := r.Validation.Of(view); v != nil &&
			(best < 0 || v.Accuracy > records[best].Validation.Of(view).Accuracy) {
			best = i
		}
	}
	return best
}

// stop says why the run ends after these rounds, before all are trained; empty where it goes on. It counts rounds from
// 1, as the terminal does.
func (e Evaluate) stop(records []Record, view method.View) string {
	best := bestVal(records, view)
	if e.Patience == 0 || best < 0 {
		return ""
	}
	since := 0
	for _, r := range records[best+1:] {
		if r.Validation.Of(view) != nil {
			since++
		}
	}
	if since < e.Patience {
		return ""
	}
	return fmt.Sprintf("train.patience: no better validation accuracy in the %d tested rounds after round %d", since,
		records[best].Round+1)
}

// result tells whether the last of these rounds is the run's result, as far as they go, so that all that is measured of
// a result is measured.
func (e Evaluate) result(records []Record, view method.View, rounds int) bool {
	if e.BestVal {
		return bestVal(records, view) == len(records)-1
	}
	return len(records) == rounds || e.stop(records, view) != ""
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
	members := e.members(set)
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
			j.Records[best].Round+1)
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
		s.Confusion = s.confusion(g.Round, replies)
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
