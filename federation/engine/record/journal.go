package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// Records reads the rounds of a run folder, up to the first line that is not a record.
func Records(dir string) ([]Record, error) {
	b, err := os.ReadFile(filepath.Join(dir, RoundsFile))
	if err != nil {
		return nil, err
	}

	records, err := parseLines(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, RoundsFile), err)
	}

	return records, nil
}

// Journal is rounds.jsonl, one record a line.
type Journal struct {
	path    string
	Records []Record

	Best     tensor.Map // of a run without a folder: what the best round on validation data left
	ZeroShot []ZeroShot
}

// OpenJournal reads the lines of finished rounds and drops lines that a crash left behind them. The record of the last
// finished round is that of the checkpoint, since the line may be missing or belong to a run of more rounds. settle
// may change it, where the run goes on to another number of rounds.
func OpenJournal(path string, done int, last Record, settle func([]Record)) (*Journal, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	records, text, err := parseJournal(b, done, last, settle)
	if err != nil {
		return nil, fmt.Errorf("cannot resume: %s: %w", path, err)
	}

	return &Journal{path: path, Records: records}, atomicfile.Write(path, atomicfile.Bytes(text))
}

// parseJournal returns the records of finished rounds, and their lines.
func parseJournal(b []byte, done int, last Record, settle func([]Record)) (records []Record, text []byte, err error) {
	if records, err = parseLines(b); err != nil {
		return nil, nil, err
	}

	if len(records) < done-1 {
		return nil, nil, fmt.Errorf("it has %d readable rounds, the checkpoint has %d; restore the file or start "+
			"again in another folder", len(records), done)
	}

	if records = records[:max(0, done-1)]; done > 0 {
		records = append(records, last)
		settle(records)
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

// parseLines returns the records of consecutive rounds, up to the first line that is not a record or has no end. A line
// of another format is an error: the rounds behind it exist, and this program cannot read them.
func parseLines(b []byte) (records []Record, err error) {
	for line := range bytes.Lines(b) {
		line, whole := bytes.CutSuffix(line, []byte("\n"))
		r, err := ParseLine(line, len(records))
		if other, ok := errors.AsType[FormatError](err); ok {
			return nil, other
		}
		if err != nil || !whole {
			break
		}
		records = append(records, r)
	}

	return records, nil
}

// Add appends the record of a round to the file, and syncs the file. Records has the round only where this succeeded.
func (j *Journal) Add(record Record) error {
	line, err := json.Marshal(record)
	if err != nil {
		return err
	}

	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}

	if _, err = f.Write(append(line, '\n')); err == nil {
		err = f.Sync()
	}

	if err = errors.Join(err, f.Close()); err == nil {
		j.Records = append(j.Records, record)
	}

	return err
}

const (
	RoundsFile  = "rounds.jsonl"        // a Record for each round, one JSON object a line
	SummaryFile = "summary.json"        // the Summary of a finished run
	PromptsFile = "prompts.safetensors" // the learned parameters of a finished run
	CheckFolder = "checkpoint"          // what a run continues from
	// EmbeddingsFile holds by backbone B the features of some test images, B/image [N,D] with B/label [N], and those of
	// the classes, B/text/start [C,D] before round 0 and B/text/end [C,D] after the last. All rows are unit rows.
	EmbeddingsFile = "embeddings.safetensors"
)
