package engine

import (
	"context"
	"errors"
	"fmt"
)

// examiner is a worker that knows the classes of an exam.
type examiner struct {
	*Worker
	exam Exam
}

// examiners makes one for each exam of an experiment.
func examiners(e *Experiment, set WorkerSettings, shared *computed) map[string]examiner {
	out := map[string]examiner{}
	set.Tracer = nil
	for _, x := range e.Exams {
		other := *e
		other.Exams = nil
		if len(x.Classes) > 0 {
			other.Classes = x.Classes
		}
		if x.Template != "" {
			other.Template = x.Template
		}
		w := NewWorker(&other, set)
		w.computed = shared
		out[x.Name] = examiner{w, x}
	}
	return out
}

// take tests one client.
func (x examiner) take(ctx context.Context, c *Client, o Order, s State) (Scores, error) {
	visitor := *c
	visitor.Test = x.exam.Test[c.Backbone.Name()]
	if len(x.exam.Classes) > 0 {
		visitor.Train = Owned(visitor.Test.Labels()) // its own examples have other classes
	}
	o.Exam = ""
	scores, err := x.RunTest(ctx, &visitor, o, s)
	if err != nil {
		return scores, fmt.Errorf("exam %s: %w", x.exam.Name, err)
	}
	return scores, nil
}

// closeAll frees the sessions of examiners.
func closeAll(exams map[string]examiner) error {
	var errs []error
	for _, x := range exams {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}
