package trackers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/engine/record"
	"promptfed/runtime/convert"
	"promptfed/tools/lab/trackers/mlflow"
	"promptfed/tools/promptfed/runfolder"
)

// Targets of a run.
const (
	TensorBoard = runfolder.TensorBoardFolder // event files in the run folder
	MLflow      = "mlflow:"                   // followed by a folder or the address of a tracking server
)

// Help describes the targets that Check accepts.
const Help = "also write rounds for another program: tensorboard (to tensorboard/ in the run folder), mlflow:FOLDER " +
	"or mlflow:http://HOST:PORT (a tracking server); may be repeated"

// Check returns an error for unknown targets.
func Check(targets []string) error {
	for _, name := range targets {
		uri, ok := strings.CutPrefix(name, MLflow)
		switch {
		case ok:
			if _, err := mlflow.Open(uri); err != nil {
				return fmt.Errorf("--track: %w", err)
			}
		case strings.HasPrefix(name, "wandb"):
			return fmt.Errorf("--track %s: the offline files of W&B have no published format; use --track "+
				"tensorboard, and upload with wandb sync --sync-tensorboard RUN/tensorboard", name)
		case name != TensorBoard:
			return fmt.Errorf("--track %q: expected tensorboard, mlflow:FOLDER or mlflow:http://HOST:PORT", name)
		}
	}

	return nil
}

// Run is the run to send.
type Run struct {
	Dir    string
	Name   string // name in the configuration
	Method string
	Seed   uint64
	Config []byte // its config.yaml
	Digest string // digest of the data; empty if unknown
}

// Log sends a run to its targets.
type Log struct{ targets []target }

type target interface {
	round(record.Record)
	// close ends the log, with the error of the run.
	close(err error) error
}

// Open starts sending a run to some targets. A target that cannot be opened is an error. After that it calls warn with
// one line about every failure of a target, and the run continues without that target.
func Open(targets []string, r Run, warn func(string)) (*Log, error) {
	log := &Log{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(targets))) {
		var t target
		var err error
		if uri, ok := strings.CutPrefix(name, MLflow); ok {
			t, err = newTracker(uri, r, warn)
		} else {
			t, err = newEventLog(r.Dir)
		}
		if err != nil {
			return nil, errors.Join(err, log.Close(err))
		}
		log.targets = append(log.targets, t)
	}

	return log, nil
}

// Round sends a round. A resumed run sends its earlier rounds again.
func (l *Log) Round(r record.Record) {
	for _, t := range l.targets {
		t.round(r)
	}
}

// Close ends the log, with the error of the run. A second call does nothing. It returns only errors about files in the
// run folder, which are part of the run.
func (l *Log) Close(err error) error {
	all := convert.Slice(l.targets, func(t target) error { return t.close(err) })
	l.targets = nil
	return errors.Join(all...)
}
