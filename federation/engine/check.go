package engine

import (
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/optim"
)

func checkPlan(e *spec.Experiment, clients int) error {
	if clients == 0 {
		return errors.New("the experiment has no clients")
	}
	if e.Plan.Rounds < 1 || e.Training.Epochs < 1 || e.Training.Batch < 1 {
		return fmt.Errorf("train.rounds, train.epochs and train.batch are %d, %d and %d; each must be 1 or more",
			e.Plan.Rounds, e.Training.Epochs, e.Training.Batch)
	}
	if p := e.Plan.Participation; !(p >= 0 && p <= 1) {
		return &configtags.KeyError{Key: "participation", Err: fmt.Errorf("participation is %v; it must be above 0 "+
			"and at most 1 (0 counts as 1)", p)}
	}
	for _, id := range e.Plan.Trainers {
		if id < 0 || id >= clients {
			return fmt.Errorf("client %d does not exist; there are %d clients", id, clients)
		}
	}
	if len(e.Classes) == 0 {
		return errors.New("the experiment has no classes")
	}
	_, err := optim.New(e.Training.Optim)
	return err
}

// checkClients returns an error for clients of the experiment that cannot take part.
func checkClients(e *spec.Experiment) error {
	if e.Synthetic != nil {
		if err := e.Synthetic.Check(len(e.Classes)); err != nil {
			return err
		}
	}
	shared := message.SharedShapes{}
	backbones := map[string]spec.Backbone{}
	for i, c := range e.Clients {
		if c.ID != i {
			return fmt.Errorf("client %d is at position %d; clients must be numbered from 0 in order", c.ID, i)
		}
		if b, ok := backbones[c.Backbone.Name()]; ok && b != c.Backbone {
			return fmt.Errorf("client %d: two backbones are called %s; rename one of them", c.ID,
				c.Backbone.Name())
		}
		backbones[c.Backbone.Name()] = c.Backbone
		if err := CheckClient(e, c); err != nil {
			return err
		}
		if err := shared.Add(e.Method, e.Task(c)); err != nil {
			return err
		}
	}
	return e.CheckEvaluationSets()
}

// CheckClient returns an error for a client that cannot train or be tested.
func CheckClient(e *spec.Experiment, c *spec.Client) error {
	if c.Train.Len() == 0 {
		return fmt.Errorf("client %d has no training data; use fewer clients or another partition", c.ID)
	}
	if c.Test.Len() == 0 {
		return fmt.Errorf("client %d has no test data; use fewer clients or another partition", c.ID)
	}
	labels := slices.Concat(c.Train.Labels(), c.Test.Labels())
	if c.Val != nil {
		labels = append(labels, c.Val.Labels()...)
	}
	for _, y := range labels {
		if y < 0 || y >= int64(len(e.Classes)) {
			return fmt.Errorf("client %d has label %d, but there are %d classes", c.ID, y, len(e.Classes))
		}
	}
	return nil
}

// checkParticipants returns an error for clients on other machines that cannot take part together.
func checkParticipants(e *spec.Experiment, participants []message.Participant) error {
	if e.Synthetic != nil {
		return errors.New("a server whose clients are on other machines has no images of its own; use promptfed run, " +
			"or remove the section synthetic")
	}
	i := slices.IndexFunc(participants, func(m message.Participant) bool { return m.Joined })
	if i < 0 {
		return errors.New("no client has joined")
	}
	for _, m := range participants {
		if m.Joined {
			if err := m.CheckAveragedWith(participants[i], e.Method); err != nil {
				return err
			}
		}
	}
	return nil
}
