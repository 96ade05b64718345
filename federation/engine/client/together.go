package client

import (
	"context"
	"crypto/sha256"
	"math/bits"
	"slices"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Job is an instruction to one client.
type Job struct {
	Client      *spec.Client
	Instruction message.Instruction
	// State returns what the client remembers, which need not be in memory before it is needed.
	State func() (message.ClientState, error)
}

// Groups divides jobs of one kind, by their index, among calls of Turns: to train, up to Worker.BatchClients clients of
// one program with about as many steps. That division depends on the experiment and the list only. Prefixes of tests
// that can be computed together are computed here, so many at a time.
func (w *Worker) Groups(ctx context.Context, jobs []Job, workers int) ([][]int, error) {
	if len(jobs) == 0 || jobs[0].Instruction.Kind != message.Train {
		return alone(jobs), w.computeAhead(ctx, jobs, workers)
	}

	if w.Experiment.BatchClients <= 1 || w.shared != nil {
		return alone(jobs), nil
	}

	var out [][]int
	var programs []int64
	byProgram, steps := map[int64][]int{}, make([]int, len(jobs))
	for i, j := range jobs {
		client := j.Client
		plan, err := w.compiler.step(ctx, client.Backbone, w.Task(client, j.Instruction.Total))
		if err != nil {
			return nil, err
		}

		if plan.notBatchable {
			out = append(out, []int{i})
			continue
		}

		if byProgram[plan.number] == nil {
			programs = append(programs, plan.number)
		}

		steps[i] = w.Experiment.Training.StepsOf(client.ID, client.Train.Len())
		byProgram[plan.number] = append(byProgram[plan.number], i)
	}

	for _, p := range programs { // clients that end together are in one group
		slices.SortStableFunc(byProgram[p], func(i, j int) int { return steps[j] - steps[i] })
		out = slices.AppendSeq(out, slices.Chunk(byProgram[p], w.Experiment.BatchClients))
	}

	return out, nil
}

// alone returns groups of one job.
func alone(jobs []Job) [][]int { return slices.Collect(slices.Chunk(tensor.Indices(len(jobs)), 1)) }

// inOneRun divides items, one per client, among runs: as many items as allowed, or a power of two, so that a worker
// compiles few graphs.
func inOneRun[T any](w *Worker, items []T) (runs [][]T) {
	for len(items) > 0 {
		n := max(1, w.Experiment.BatchClients)
		if len(items) < n {
			n = 1 << (bits.Len(uint(len(items))) - 1)
		}
		runs, items = append(runs, items[:n]), items[n:]
	}

	return runs
}

// missingPrefix is a prefix of the class scores of one client that is not computed yet.
type missingPrefix struct {
	key  [sha256.Size]byte
	plan *plan
	in   inputs
}

// computeAhead computes the prefixes that tests of some clients need, such as class features of their prompts, for up
// to BatchClients clients in one run, with so many runs at a time. The tests find the values in the cache.
func (w *Worker) computeAhead(ctx context.Context, jobs []Job, workers int) error {
	if w.Experiment.BatchClients <= 1 || len(jobs) == 0 {
		return nil
	}

	instruction := jobs[0].Instruction
	if instruction.Kind != message.Test && instruction.Kind != message.Validate {
		return nil
	}

	evaluator, other := w.evaluators[instruction.Set]
	if other {
		w = evaluator.worker
	}

	w.compiler.beginTests(instruction.Round)
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(workers)
	run := func(values []missingPrefix) { eg.Go(func() error { return w.computePrefixes(ctx, values) }) }
	seen, waiting, bytes := map[[sha256.Size]byte]bool{}, map[int64][]missingPrefix{}, 0
	err := func() error {
		for _, job := range jobs {
			s, err := job.State()
			if err != nil {
				return err
			}

			client := job.Client
			if other {
				client = evaluator.visitor(client)
			}

			missing, err := w.missingPrefixes(ctx, client, job.Instruction, s)
			if err != nil {
				return ofTurn(client, instruction, err)
			}

			for _, v := range missing {
				// a value that the cache drops before a test asks for it costs double
				if seen[v.key] || bytes > w.compiler.values.capacity/2 {
					continue
				}
				seen[v.key] = true
				bytes += v.plan.prefix.bytes
				n := v.plan.prefix.number
				if waiting[n] = append(waiting[n], v); len(waiting[n]) == w.Experiment.BatchClients {
					run(waiting[n])
					waiting[n] = nil
				}
			}
		}

		for _, rest := range waiting {
			for _, values := range inOneRun(w, rest) {
				run(values)
			}
		}

		return nil
	}()

	if failed := eg.Wait(); err == nil {
		err = failed
	}

	return err
}

// missingPrefixes lists the values of prefixes that a client's test needs and that the caches lack.
func (w *Worker) missingPrefixes(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state message.ClientState) (out []missingPrefix, err error) {
	rows := client.Test
	if instruction.Kind == message.Validate {
		rows = client.Val
	}

	if rows == nil || rows.Len() == 0 {
		return nil, nil
	}

	local, state := w.Begin(ctx, client, instruction, state)
	plan, err := w.compiler.score(ctx, client.Backbone, local.Task)
	if err != nil || plan.prefix == nil || plan.notBatchable {
		return nil, err
	}

	for _, view := range w.evaluations(w.compiler.evaluable(local.Task), plan, state) {
		if view == method.PersonalView && w.Experiment.Training.FineTune > 0 {
			break // its parameters are not there yet
		}

		l := *local
		if view == method.PersonalView && len(state.Own) > 0 {
			l.Shared = state.Own
		}

		prefix := missingPrefix{plan: plan, in: inputsOf(&l, state)}
		var scores [sha256.Size]byte
		if scores, prefix.key, err = plan.testKeys(prefix.in, rows); err != nil {
			return nil, err
		}

		if _, done := w.compiler.tested.find(scores); done {
			continue
		}

		if _, done := w.compiler.values.find(prefix.key); done {
			continue
		}

		if err := prefix.in.computeHosts(plan.prefix); err != nil {
			return nil, err
		}

		out = append(out, prefix)
	}

	return out, nil
}

func (w *Worker) computePrefixes(ctx context.Context, values []missingPrefix) error {
	ins := convert.Slice(values, func(v missingPrefix) inputs { return v.in })
	outs, err := values[0].plan.runPrefix(ctx, ins...)
	for i := 0; i < len(values) && err == nil; i++ {
		_, err = cached(w.compiler.values, values[i].key, func() (ort.Values, error) { return outs[i], nil })
	}
	return err
}
