package client

import (
	"context"
	"errors"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
)

// setEvaluator is a worker that knows the classes of an evaluation set.
type setEvaluator struct {
	*Worker
	set spec.EvaluationSet
}

// setEvaluators makes one for each evaluation set of an experiment.
func setEvaluators(e *spec.Experiment, set Settings, shared *valueCache) map[string]setEvaluator {
	out := map[string]setEvaluator{}
	set.Tracer = nil
	for _, x := range e.EvaluationSets {
		other := *e
		other.EvaluationSets = nil
		if len(x.Classes) > 0 {
			other.Classes = x.Classes
		}
		if x.Template != "" {
			other.Template = x.Template
		}
		out[x.Name] = setEvaluator{newWorker(&other, set, shared), x}
	}
	return out
}

// evaluate tests one client.
func (x setEvaluator) evaluate(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (message.Scores, error) {
	o.Set = ""
	scores, err := x.Test(ctx, x.visitor(c), o, s)
	if err != nil {
		return scores, fmt.Errorf("evaluation set %s: %w", x.set.Name, err)
	}
	return scores, nil
}

// visitor returns a copy of a client whose test data is the evaluation set.
func (x setEvaluator) visitor(c *spec.Client) *spec.Client {
	v := *c
	v.Test = x.set.Test[c.Backbone.Name()]
	if len(x.set.Classes) > 0 {
		v.Train = spec.LabelsOnly(v.Test.Labels()) // its own examples have other classes
	}
	return &v
}

// closeAll frees the sessions of set evaluators.
func closeAll(evaluators map[string]setEvaluator) error {
	var errs []error
	for _, x := range evaluators {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}
