package trackers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/engine/record"
	"promptfed/tools/lab/trackers/mlflow"
	"promptfed/tools/promptfed/runfolder"
)

// What a run can be sent to.
const (
	TensorBoard = runfolder.TensorBoardFolder // event files in the run folder
	MLflow      = "mlflow:"                   // with a folder or the address of a tracking server behind it
)

// Help describes the targets that Check accepts.
const Help = "also write rounds for another program: tensorboard (to tensorboard/ in the run folder), mlflow:FOLDER " +
	"or mlflow:http://HOST:PORT (a tracking server); may be repeated"

// Check finds targets that there are not.
func Check(targets []string) error {
	for _, t := range targets {
		uri, ok := strings.CutPrefix(t, MLflow)
		switch {
		case ok:
			if _, err := mlflow.Open(uri); err != nil {
				return fmt.Errorf("--log: %w", err)
			}
		case strings.HasPrefix(t, "wandb"):
			return fmt.Errorf("--log %s: the offline files of W&B have no published format; use --log tensorboard, "+
				"and upload with wandb sync --sync-tensorboard RUN/tensorboard", t)
		case t != TensorBoard:
			return fmt.Errorf("--log %q: expected tensorboard, mlflow:FOLDER or mlflow:http://HOST:PORT", t)
		}
	}
	return nil
}

// Run is the run that is sent.
type Run struct {
	Dir    string
	Name   string // of its configuration
	Method string
	Seed   uint64
	Config []byte // its config.yaml
	Digest string // of its data; empty where it is unknown
}

// Log sends a run to its targets.
type Log struct{ targets []target }

type target interface {
	round(record.Record)
	// close ends it, with the error that the run ended with.
	close(err error) error
}

// Open begins to send a run to some targets. Warn is told, in one line, what a target does not take: the run goes on
// without it.
func Open(targets []string, r Run, warn func(string)) (*Log, error) {
	l := &Log{}
	targets = slices.Clone(targets)
	slices.Sort(targets)
	for _, name := range slices.Compact(targets) {
		var t target
		var err error
		if uri, ok := strings.CutPrefix(name, MLflow); ok {
			t, err = newTracker(uri, r, warn)
		} else {
			t, err = newEventLog(r.Dir)
		}
		if err != nil {
			return nil, errors.Join(err, l.Close(err))
		}
		l.targets = append(l.targets, t)
	}
	return l, nil
}

// Round sends a round. A run that goes on sends its earlier rounds again.
func (l *Log) Round(r record.Record) {
	for _, t := range l.targets {
		t.round(r)
	}
}

// Close ends what is sent, with the error that the run ended with; a second time it does nothing. The error is that of
// files in the run folder, which are part of the run.
func (l *Log) Close(err error) error {
	var all []error
	for _, t := range l.targets {
		all = append(all, t.close(err))
	}
	l.targets = nil
	return errors.Join(all...)
}
