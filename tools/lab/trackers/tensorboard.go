package trackers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"promptfed/federation/engine/record"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/trackers/tensorboard"
)

// eventLog writes rounds for TensorBoard into the folder tensorboard of a run. A resumed run writes its earlier rounds
// again. A write error is reported by close and disturbs nothing else.
type eventLog struct {
	file    *os.File
	w       *tensorboard.Writer
	metrics results.RunningMetrics
}

// newEventLog creates the file.
func newEventLog(dir string) (*eventLog, error) {
	path := filepath.Join(dir, TensorBoard, tensorboard.FileName)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}

	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}

	return &eventLog{file: f, w: tensorboard.NewWriter(f, time.Now())}, nil
}

// round adds a round, counted from 1: its metrics by their names, where domain:Art becomes domain/Art, and the values
// of each client.
func (l *eventLog) round(r record.Record) {
	values := map[string]float64{"learning rate": r.LR, "bytes/up": float64(r.BytesUp),
		"bytes/down": float64(r.BytesDown)}
	for name, v := range l.metrics.Values(r) {
		values[strings.ReplaceAll(name, ":", "/")] = v
	}

	if r.Evaluation != nil {
		for i, v := range r.Evaluation.PerClient {
			if len(r.Answered) > 0 {
				i = r.Answered[i]
			}
			values[fmt.Sprintf("clients/%d", i)] = v
		}
	}

	l.w.Add(r.Round+1, time.Now(), values)
}

// close ends the file and returns the first error.
func (l *eventLog) close(error) error {
	if err := errors.Join(l.w.Err, l.file.Close()); err != nil {
		return fmt.Errorf("%s: %w", l.file.Name(), err)
	}
	return nil
}
