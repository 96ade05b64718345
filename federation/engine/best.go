package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/engine/record"
	"promptfed/federation/engine/state"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// bestPrefix and bestSuffix surround the round in the name of the file with the prompts of the best round, in the form
// of PromptsFile.
const (
	bestPrefix = "best-"
	bestSuffix = ".safetensors"
)

func bestPath(dir string, round int) string {
	return filepath.Join(dir, record.CheckFolder, fmt.Sprintf("%s%06d%s", bestPrefix, round, bestSuffix))
}

// keepBest writes the prompts of a round that is the best so far, before the round is committed.
func (s *Server) keepBest(rec record.Record) error {
	records := append(slices.Clone(s.journal.Records), rec)
	if !s.Evaluate.BestVal || record.BestVal(records, s.view) != len(records)-1 {
		return nil
	}
	best, err := s.writePrompts(bestPath(s.Dir, rec.Round))
	s.journal.Best = best
	return err
}

// writePrompts writes the prompts of all clients, in the form of PromptsFile. It returns those of a run without a
// folder.
func (s *Server) writePrompts(path string) (tensor.Map, error) {
	participants := s.participants()
	parts := state.Sections(s.Experiment, &s.Global, s.store, participants)
	if s.Dir == "" {
		return state.LoadSections(parts)
	}
	meta, err := state.Metadata(s.Experiment, participants)
	if err != nil {
		return nil, err
	}
	return nil, state.WriteSections(path, parts, meta)
}

// sweepBest removes the files of earlier best rounds.
func (s *Server) sweepBest() {
	best := record.BestVal(s.journal.Records, s.view)
	if !s.Evaluate.BestVal || s.Dir == "" || best < 0 {
		return
	}
	keep := filepath.Base(bestPath(s.Dir, s.journal.Records[best].Round))
	entries, _ := os.ReadDir(filepath.Join(s.Dir, record.CheckFolder))
	for _, f := range entries {
		if strings.HasPrefix(f.Name(), bestPrefix) && strings.HasSuffix(f.Name(), bestSuffix) && f.Name() != keep {
			os.Remove(filepath.Join(s.Dir, record.CheckFolder, f.Name()))
		}
	}
}

// checkBest refuses to resume a run whose best round was not kept.
func (s *Server) checkBest() error {
	records := s.journal.Records
	best := record.BestVal(records, s.view)
	if !s.Evaluate.BestVal || s.Dir == "" || len(records) == 0 {
		return nil
	}
	if best < 0 {
		return errors.New("cannot resume: the rounds so far were not tested on validation data; set eval.select to " +
			"last, or start again in another folder")
	}
	_, err := os.Stat(bestPath(s.Dir, records[best].Round))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot resume: the parameters of round %d, the best so far, were not kept, since "+
			"eval.select was not best-val; set it to last, or start again in another folder", records[best].Round+1)
	}
	return err
}

// takeBest copies the prompts of the selected round to the prompts of the run.
func takeBest(dir string, round int) error {
	in, err := os.Open(bestPath(dir, round))
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Write(filepath.Join(dir, record.PromptsFile), func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}
