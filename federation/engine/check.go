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

func checkPlan(experiment *spec.Experiment, clients int) error {
	if clients == 0 {
		return errors.New("the experiment has no clients")
	}

	if experiment.Plan.Rounds < 1 || experiment.Training.Epochs < 1 || experiment.Training.Batch < 1 {
		return fmt.Errorf("train.rounds, train.epochs and train.batch are %d, %d and %d; each must be 1 or more",
			experiment.Plan.Rounds, experiment.Training.Epochs, experiment.Training.Batch)
	}

	if p := experiment.Plan.Participation; !(p >= 0 && p <= 1) {
		return configtags.KeyErrorf("participation", "%v must be above 0 and at most 1 (0 counts as 1)", p)
	}

	for _, id := range experiment.Plan.Trainers {
		if id < 0 || id >= clients {
			return fmt.Errorf("client %d does not exist; there are %d clients", id, clients)
		}
	}

	if len(experiment.Classes) == 0 {
		return errors.New("the experiment has no classes")
	}

	_, err := optim.New(experiment.Training.Optim)
	return err
}

// checkClients returns an error for clients of the experiment that cannot take part.
func checkClients(experiment *spec.Experiment) error {
	if experiment.Synthetic != nil {
		if err := experiment.Synthetic.Check(len(experiment.Classes)); err != nil {
			return err
		}
	}

	backbones := map[string]spec.Backbone{}
	for i, client := range experiment.Clients {
		if client.ID != i {
			return fmt.Errorf("client %d is at position %d; clients must be numbered from 0 in order", client.ID, i)
		}

		if b, ok := backbones[client.Backbone.Name()]; ok && b != client.Backbone {
			return fmt.Errorf("client %d: two backbones are called %s; rename one of them", client.ID,
				client.Backbone.Name())
		}

		backbones[client.Backbone.Name()] = client.Backbone
		if err := CheckClient(experiment, client); err != nil {
			return err
		}

		if err := message.CheckAveraged(experiment.Task(client), experiment.Task(experiment.Clients[0]),
			experiment.Method); err != nil {
			return err
		}
	}

	return experiment.CheckEvaluationSets()
}

// CheckClient returns an error for a client that cannot train or be tested.
func CheckClient(experiment *spec.Experiment, client *spec.Client) error {
	if client.Train.Len() == 0 {
		return fmt.Errorf("client %d has no training data; use fewer clients or another partition", client.ID)
	}

	if client.Test.Len() == 0 {
		return fmt.Errorf("client %d has no test data; use fewer clients or another partition", client.ID)
	}

	labels := slices.Concat(client.Train.Labels(), client.Test.Labels())
	if client.Val != nil {
		labels = append(labels, client.Val.Labels()...)
	}

	return spec.CheckLabels(fmt.Sprintf("client %d", client.ID), labels, len(experiment.Classes))
}

// checkParticipants returns an error for clients on other machines that cannot take part together.
func checkParticipants(experiment *spec.Experiment, participants []message.Participant) error {
	if experiment.Synthetic != nil {
		return errors.New("a server whose clients are on other machines has no images of its own; use promptfed run, " +
			"or remove the section synthetic")
	}

	i := slices.IndexFunc(participants, func(m message.Participant) bool { return m.Joined })
	if i < 0 {
		return errors.New("no client has joined")
	}

	for _, m := range participants {
		if m.Joined {
			if err := message.CheckAveraged(m.Task, participants[i].Task, experiment.Method); err != nil {
				return err
			}
		}
	}

	return nil
}
