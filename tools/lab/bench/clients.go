package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// ClientsReport compares steps of several clients in one run (runtime.batch_clients) with steps of single clients.
type ClientsReport struct {
	Provider string          `json:"provider"`
	Threads  int             `json:"threads"`
	Results  []ClientsResult `json:"results"`
}

// ClientsResult is the result for one number of clients on one class list.
type ClientsResult struct {
	Classes   string  `json:"classes"`
	Clients   int     `json:"clients"`
	Run       Timing  `json:"run"` // in seconds, for one step of every client
	PerSecond float64 `json:"client_steps_per_second"`
	Speedup   float64 `json:"speedup"` // over the same steps run one after another
	// Error is the largest difference between a client's batched step and its single step, divided by the largest
	// entry.
	Error float64 `json:"error"`
}

// Clients measures training steps of several clients in one run, for each of the given numbers of clients, in turns. It
// uses the first number of threads.
func Clients(ctx context.Context, o Options, counts []int) (r ClientsReport, err error) {
	if o, err = o.complete(); err != nil {
		return r, err
	}
	if i := slices.IndexFunc(counts, func(k int) bool { return k < 1 }); i >= 0 {
		return r, fmt.Errorf("clients: %d; it must be 1 or more", counts[i])
	}
	t, remove, err := openTower(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	o.Session.IntraThreads = o.Threads[0]
	r.Provider, r.Threads = o.Session.WithProvider().Provider, o.Threads[0]
	for _, name := range o.Classes {
		results, err := o.clients(ctx, t, find(name), counts)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.Results = append(r.Results, results...)
	}
	return r, nil
}

func (o Options) clients(ctx context.Context, t tower, set int, counts []int) (out []ClientsResult, err error) {
	var open closer
	defer func() { err = errors.Join(err, open.close()) }()
	classes := sets[set].classes.Names()
	alone, err := promptFL(t, classes, o.Tokens, o.Session, nil)
	if err != nil {
		return nil, err
	}
	open.add(alone.close)
	want, err := alone.together(ctx, alone.jobs(t, 1))
	if err != nil {
		return nil, err
	}
	one := &contestant{what: "one client", run: alone.run}
	all := []*contestant{one}
	for _, k := range counts {
		s, err := promptFL(t, classes, o.Tokens, o.Session, nil)
		if err != nil {
			return nil, err
		}
		open.add(s.close)
		s.worker.BatchClients = k
		jobs := s.jobs(t, k)
		got, err := s.together(ctx, jobs)
		if err != nil {
			return nil, fmt.Errorf("%d clients: %w", k, err)
		}
		out = append(out, ClientsResult{Classes: sets[set].name, Clients: k, Error: distance(got, want)})
		all = append(all, &contestant{what: fmt.Sprint(k, " clients"), run: func(ctx context.Context) error {
			_, err := s.together(ctx, jobs)
			return err
		}})
	}
	if err := o.interleave(ctx, sets[set].name+", clients in one run", all...); err != nil {
		return nil, err
	}
	for i := range out {
		c, k := all[i+1], float64(out[i].Clients)
		out[i].Run = summary(c.seconds)
		out[i].PerSecond, out[i].Speedup = k/out[i].Run.Median, k*ratio(one, c)
	}
	return out, nil
}

// jobs returns jobs for the given number of clients, each with its own images and prompt. The first job is always the
// same.
func (s *step) jobs(t tower, clients int) []client.Job {
	out := make([]client.Job, clients)
	for i := range out {
		out[i].Client = &spec.Client{ID: i, Backbone: t,
			Train: new(examples).of(t.Task(), i, "step", s.client.Train.Labels(), nil)}
		out[i].Instruction = s.order
		out[i].Instruction.Shared = tensor.Map{}
		for name, p := range s.order.Shared {
			out[i].Instruction.Shared[name] = method.Draw(seed, i, name, p.Shape, promptStd)
		}
	}
	return out
}

// together trains the clients of the jobs in one run and returns the change of the first client's prompt.
func (s *step) together(ctx context.Context, jobs []client.Job) (*tensor.Tensor, error) {
	replies, _, err := s.worker.TrainTogether(ctx, jobs)
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

// Table returns the report as text.
func (r ClientsReport) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "steps of several clients in one run (runtime.batch_clients), provider %s, %d threads\n\n",
		r.Provider, r.Threads)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "classes\tclients\tms a run (min-max)\tms a client's step\tclient-steps a second\tfaster\tdiffer")
	for _, x := range r.Results {
		fmt.Fprintf(w, "%s\t%d\t%s\t%.1f\t%.1f\t%.2fx\t%.0e\n", x.Classes, x.Clients, ms(x.Run),
			1e3*x.Run.Median/float64(x.Clients), x.PerSecond, x.Speedup, x.Error)
	}
	w.Flush()
	fmt.Fprintln(&b, "times are medians; \"faster\" than the same steps one after another; \"differ\": a client's "+
		"step from the one it makes by itself; prompts are rounded to float32")
	return b.String()
}

// Missed returns no targets, because the targets are defined for a single client's step.
func (ClientsReport) Missed() []Target { return nil }
