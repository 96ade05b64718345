package bench

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Clients measures training steps of several clients in one run (runtime.batch_clients) beside steps of single clients,
// for each number of Options.Clients, in turns. It uses the first number of threads.
func Clients(ctx context.Context, m *Measurement) error {
	if i := slices.IndexFunc(m.Clients, func(k int) bool { return k < 1 }); i >= 0 {
		return fmt.Errorf("clients: %d; it must be 1 or more", m.Clients[i])
	}

	tower, err := m.tower()
	if err != nil {
		return err
	}

	m.Session = m.session(m.threads[0])
	m.Title = fmt.Sprintf("steps of several clients in one run (runtime.batch_clients), provider %s, %d threads",
		m.Session.WithProvider().Provider, m.threads[0])
	results := m.table([]string{"classes", "clients", "ms a run (min-max)", "ms a client's step",
		"client-steps a second", "faster", "differ"}, "times are medians; \"faster\" than the same "+
		"steps one after another; \"differ\": a client's step from the one it makes by itself; prompts are rounded "+
		"to float32")

	for _, set := range m.lists {
		if err := m.clients(ctx, tower, set, results); err != nil {
			return fmt.Errorf("%s: %w", set.name, err)
		}
	}

	return nil
}

func (o Options) clients(ctx context.Context, tower *tower, set classSet, results *Table) (err error) {
	var open opened
	defer open.close(&err)
	var all []*contestant
	var changes []*tensor.Tensor // of the first client's prompt
	for i, clients := range append([]int{1}, o.Clients...) {
		step := open.step(promptFL(tower, set.classes.Names(), o.Session, nil))
		if open.err != nil {
			return open.err
		}

		step.worker.Experiment.BatchClients = clients
		jobs := step.jobs(tower, clients)
		change, err := step.together(ctx, jobs)
		if err != nil {
			return fmt.Errorf("%d clients: %w", clients, err)
		}

		changes = append(changes, change)
		all = append(all, &contestant{what: fmt.Sprint(clients, " clients"), run: func(ctx context.Context) error {
			_, err := step.together(ctx, jobs)
			return err
		}})

		if i == 0 {
			all[0].run = step.run
		}
	}

	if err := o.steps(ctx, set.name+", clients in one run", all...); err != nil {
		return err
	}

	for i, c := range all[1:] {
		k, run := float64(o.Clients[i]), c.timing()
		results.add(set.name, o.Clients[i], run, tenths(1e3*run.Median/k), tenths(k/run.Median),
			factor(k*ratio(all[0], c)), scientific(distance(changes[i+1], changes[0])))
	}

	return nil
}

// jobs returns jobs for the given number of clients, each with its own images and prompt. The first job is always the
// same.
func (s *step) jobs(t *tower, clients int) []client.Job {
	out := make([]client.Job, clients)
	for i := range out {
		out[i].Client = &spec.Client{ID: i, Backbone: t,
			Train: examples{}.of(t.Task(), i, "step", s.client.Train.Labels(), nil)}
		out[i].Instruction, out[i].State = s.order, client.Remembers(message.ClientState{})
		out[i].Instruction.Shared = tensor.Map{}
		for name, p := range s.order.Shared {
			out[i].Instruction.Shared[name] = method.Draw(seed, i, name, p.Shape, promptStd)
		}
	}

	return out
}

// together trains the clients of the jobs in one run and returns the change of the first client's prompt.
func (s *step) together(ctx context.Context, jobs []client.Job) (*tensor.Tensor, error) {
	replies, _, err := s.worker.Turns(ctx, jobs)
	if err != nil {
		return nil, err
	}

	for _, r := range replies {
		if r.Stats.Steps != 1 {
			return nil, fmt.Errorf("a turn of %d steps instead of one", r.Stats.Steps)
		}
	}

	change := replies[0].Upload.Shared["ctx"].Clone()
	change.Axpy(-1, jobs[0].Instruction.Shared["ctx"])
	return change, nil
}
