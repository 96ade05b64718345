package engine

import (
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/optim"
)

// check finds what cannot work before round 0, and gives the client that the shared parameters are drawn for.
func (e *Experiment) check(set Settings, members []Member) (Member, error) {
	if err := e.checkPlan(len(members)); err != nil {
		return Member{}, err
	}
	if set.Terms && set.Guard != nil {
		return Member{}, errors.New("eval.terms: each client would tell the lengths of its own gradients, which " +
			"secure aggregation hides; leave one of the two out")
	}
	if e.Training.Shared && (set.Remote != nil || set.Elsewhere != nil || set.Guard != nil || set.Around != nil) {
		return Member{}, errors.New("train.optimizer_state: shared has one optimizer go from client to client; run " +
			"it in one process, without secure aggregation")
	}
	if set.Remote != nil {
		return e.checkMembers(members)
	}
	return members[0], e.checkClients()
}

func (e *Experiment) checkPlan(clients int) error {
	if clients == 0 {
		return errors.New("the experiment has no clients")
	}
	if e.Plan.Rounds < 1 || e.Training.Epochs < 1 || e.Training.Batch < 1 {
		return fmt.Errorf("train.rounds, train.epochs and train.batch are %d, %d and %d; each must be 1 or more",
			e.Plan.Rounds, e.Training.Epochs, e.Training.Batch)
	}
	if p := e.Plan.Participation; !(p >= 0 && p <= 1) {
		return fmt.Errorf("participation is %v; it must lie above 0 and at most at 1 (0 counts as 1)", p)
	}
	for _, id := range e.Plan.Trainers {
		if id < 0 || id >= clients {
			return fmt.Errorf("client %d is to train, but there are %d clients", id, clients)
		}
	}
	if len(e.Classes) == 0 {
		return errors.New("the experiment has no classes")
	}
	_, err := optim.New(e.Training.Optim)
	return err
}

// checkClients finds what is wrong with the experiment's own clients.
func (e *Experiment) checkClients() error {
	if e.Synthetic != nil {
		if err := e.Synthetic.check(len(e.Classes)); err != nil {
			return err
		}
	}
	first := map[string]string{}
	backbones := map[string]Backbone{}
	for i, c := range e.Clients {
		if c.ID != i {
			return fmt.Errorf("client %d stands at place %d; clients must be numbered from 0 in order", c.ID, i)
		}
		if b, ok := backbones[c.Backbone.Name()]; ok && b != c.Backbone {
			return fmt.Errorf("client %d: another backbone is called %s too; give one of them another name", c.ID,
				c.Backbone.Name())
		}
		backbones[c.Backbone.Name()] = c.Backbone
		if err := e.CheckClient(c); err != nil {
			return err
		}
		for _, p := range e.Method.Params(e.task(c)) {
			if p.Owner != method.Shared {
				continue
			}
			here := fmt.Sprint(p.Shape)
			if shape, ok := first[p.Name]; ok && shape != here {
				return unalike(p.Name, here, c.ID, c.Backbone.Name(), shape+" on others")
			}
			first[p.Name] = here
		}
	}
	return e.checkExams()
}

// CheckClient finds what a client cannot train or be tested with.
func (e *Experiment) CheckClient(c *Client) error {
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
