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
func (l *eventLog) round(next record.Record) {
	values := map[string]float64{"learning rate": next.LR, "bytes/up": float64(next.BytesUp),
		"bytes/down": float64(next.BytesDown)}
	for name, v := range l.metrics.Values(next) {
		values[strings.ReplaceAll(name, ":", "/")] = v
	}

	if next.Evaluation != nil {
		for i, v := range next.Evaluation.PerClient {
			if len(next.Answered) > 0 {
				i = next.Answered[i]
			}
			values[fmt.Sprintf("clients/%d", i)] = v
		}
	}

	l.w.Add(next.Round+1, time.Now(), values)
}

// close ends the file and returns the first error.
func (l *eventLog) close(error) error {
	if err := errors.Join(l.w.Err, l.file.Close()); err != nil {
		return fmt.Errorf("%s: %w", l.file.Name(), err)
	}
	return nil
}
