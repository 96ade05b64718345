package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// Records reads the rounds of a run folder, up to the first line that is none.
func Records(dir string) ([]Record, error) {
	b, err := os.ReadFile(filepath.Join(dir, RoundsFile))
	if err != nil {
		return nil, err
	}
	var out []Record
	for line := range splitLines(b) {
		var r Record
		if json.Unmarshal(line, &r) != nil || r.Round != len(out) {
			break
		}
		out = append(out, r)
	}
	return out, nil
}

// Journal is rounds.jsonl, one record a line.
type Journal struct {
	path    string
	Records []Record

	Best     tensor.Map // of a run without a folder: what the best round on validation data left
	ZeroShot []ZeroShot
}

// OpenJournal reads the lines of rounds that are done and drops what a crash left behind them.
func OpenJournal(path string, done int, last Record) (*Journal, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	records, text, err := parseJournal(b, done, last)
	if err != nil {
		return nil, fmt.Errorf("cannot resume: %s: %w", path, err)
	}
	return &Journal{path: path, Records: records}, atomicfile.WriteBytes(path, text)
}

// parseJournal gives the records of the rounds that are done, and their lines.
func parseJournal(b []byte, done int, last Record) (records []Record, text []byte, err error) {
	for line := range splitLines(b) {
		var r Record
		if json.Unmarshal(line, &r) != nil || r.Round >= done || r.Round != len(records) {
			break
		}
		records = append(records, r)
	}
	if done > 0 && len(records) == done-1 {
		records = append(records, last)
	}
	if len(records) != done {
		return nil, nil, fmt.Errorf("it has %d readable rounds, the checkpoint %d; put back the file or start again "+
			"in another folder", len(records), done)
	}
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, nil, err
		}
		text = append(append(text, line...), '\n')
	}
	return records, text, nil
}

func splitLines(b []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			i := 0
			for i < len(b) && b[i] != '\n' {
				i++
			}
			if i == len(b) || !yield(b[:i]) { // a line without its end was not finished
				return
			}
			b = b[i+1:]
		}
	}
}

func (j *Journal) Add(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(line, '\n')); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	j.Records = append(j.Records, r)
	return f.Close()
}

// Files of a run folder.
const (
	RoundsFile  = "rounds.jsonl"
	SummaryFile = "summary.json"
	PromptsFile = "prompts.safetensors"
	CheckFolder = "checkpoint"
)
