package runlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"promptfed/federation/engine/record"
	"promptfed/tools/report/tensorboard"
)

// eventLog writes rounds as TensorBoard reads them, into the folder tensorboard of a run. A run that goes on writes its
// earlier rounds again. A failure to write is kept for close and disturbs nothing else.
type eventLog struct {
	file *os.File
	w    *tensorboard.Writer
	err  error
}

// newEventLog begins the file.
func newEventLog(dir string) (*eventLog, error) {
	dir = filepath.Join(dir, TensorBoard)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, tensorboard.FileName))
	if err != nil {
		return nil, err
	}
	w, err := tensorboard.NewWriter(f, time.Now())
	return &eventLog{file: f, w: w, err: err}, nil
}

// round adds a round.
func (l *eventLog) round(r record.Record) {
	if l.err != nil {
		return
	}
	values := map[string]float64{"loss": r.Loss, "learning rate": r.LR, "bytes/up": float64(r.BytesUp),
		"bytes/down": float64(r.BytesDown),
		"seconds":    r.Seconds}
	if r.Global != nil {
		values["accuracy/global"] = *r.Global
	}
	if r.Personal != nil {
		values["accuracy/personal"] = *r.Personal
	}
	if r.Evaluation != nil {
		values["accuracy/mean"], values["accuracy/std"], values["accuracy/weighted"] = r.Accuracy, r.Std, r.Weighted
		values["accuracy/worst"], values["f1"] = r.Worst, r.F1
		for i, v := range r.PerClient {
			if len(r.Answered) > 0 {
				i = r.Answered[i]
			}
			values[fmt.Sprintf("clients/%d", i)] = v
		}
		for d, v := range r.PerDomain {
			values["domains/"+d] = v
		}
	}
	for name, x := range r.EvaluationSets {
		if x.Evaluation != nil {
			values["exams/"+name] = x.Accuracy
		}
	}
	l.err = l.w.Add(r.Round, time.Now(), values)
}

// close ends the file and tells what went wrong.
func (l *eventLog) close(error) error {
	if err := errors.Join(l.err, l.file.Close()); err != nil {
		return fmt.Errorf("%s: %w", l.file.Name(), err)
	}
	return nil
}
