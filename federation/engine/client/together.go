package client

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Several clients in one run: one graph contains a program's graph once for each of them, with inputs and outputs of
// its own under "N/", and the prompts of all go through the text tower in one pass. The sum of their losses has the
// gradients of each, since no client's parameters reach another's loss.

// Job is an instruction for one client.
type Job struct {
	Client      *spec.Client
	Instruction message.Instruction
	State       message.ClientState // what the client remembers
}

// Groups divides clients that are to train, by their place in a list, among calls of TrainTogether: up to
// Worker.BatchClients of one program and about as many steps. Nothing but the experiment and the list decides.
func (w *Worker) Groups(clients []*spec.Client, total int) ([][]int, error) {
	if w.BatchClients <= 1 || w.shared != nil {
		return slices.Collect(slices.Chunk(message.Indices(len(clients)), 1)), nil
	}
	var out [][]int
	var programs []int64
	of, steps := map[int64][]int{}, make([]int, len(clients))
	for i, c := range clients {
		p, err := w.c.step(c.Backbone, w.Task(c, total))
		if err != nil {
			return nil, err
		}
		if p.apart {
			out = append(out, []int{i})
			continue
		}
		if of[p.number] == nil {
			programs = append(programs, p.number)
		}
		steps[i] = w.Training.StepsOf(c.ID, c.Train.Len())
		of[p.number] = append(of[p.number], i)
	}
	for _, p := range programs { // those that end together go side by side
		slices.SortStableFunc(of[p], func(i, j int) int { return steps[j] - steps[i] })
		out = slices.AppendSeq(out, slices.Chunk(of[p], w.BatchClients))
	}
	return out, nil
}

// inOneRun is how many of n clients go into the next run: as many as may, or a power of two, so that a worker compiles
// few graphs.
func (w *Worker) inOneRun(n int) int {
	if n >= w.BatchClients {
		return max(1, w.BatchClients)
	}
	return 1 << (bits.Len(uint(n)) - 1)
}

// runSteps computes a step of each of some turns of one program.
func (w *Worker) runSteps(ctx context.Context, turns []*turn, ins []inputs) (feeds []feed, outs []tensor.Map,
	err error) {
	first := turns[0]
	feeds, outs = make([]feed, len(turns)), make([]tensor.Map, len(turns))
	if first.atReceived() {
		feeds[0], outs[0], err = w.stepAtReceived(ctx, first, ins[0])
		return feeds, outs, err
	}
	if len(turns) == 1 {
		feeds[0], outs[0], err = first.p.inParts(ctx, ins[0], first.host, first.epoch)
		return feeds, outs, err
	}
	for i, t := range turns {
		if feeds[i], err = ins[i].feed(t.p, t.host, t.epoch); err != nil {
			return nil, nil, err
		}
	}
	session, err := w.c.stepOf(first.c.Backbone, first.l.Task, first.p, len(turns))
	if err == nil {
		outs, err = runAll(ctx, session.RunWith, session.Inputs(), feeds)
	}
	return feeds, outs, err
}

// stepOf compiles the step of n clients that p is the step of each of.
func (c *compiler) stepOf(b spec.Backbone, task method.ClientSpec, p *program, n int) (*ort.Session, error) {
	return c.several(b, task, p, n, func(s *method.Scope) ([]graph.Output, error) {
		losses, err := c.losses(s)
		if err != nil {
			return nil, err
		}
		return c.withGradients(b, s, losses, n, nil)
	})
}

// fixedOf compiles what is fixed in the class scores of n clients; p is program.fixed of each.
func (c *compiler) fixedOf(b spec.Backbone, task method.ClientSpec, p *program, n int) (*ort.Session, error) {
	return c.several(b, task, p, n, func(s *method.Scope) ([]graph.Output, error) {
		_, out := cut(c.m.Logits(s))
		all := copies(s, out, n)
		nodes, err := c.allLowered(b, nodesOf(all), nil)
		for i := range nodes {
			all[i].Node = nodes[i]
		}
		return all, err
	})
}

func (c *compiler) several(b spec.Backbone, task method.ClientSpec, p *program, n int,
	build func(*method.Scope) ([]graph.Output, error)) (*ort.Session, error) {
	return c.session(fmt.Sprint(p.number, " of ", n), b, func() ([]graph.Output, error) {
		return build(c.scope(task))
	})
}

// copies are outputs for each of n clients, one after the other; of one client they are themselves.
func copies(s *method.Scope, of []graph.Output, n int) []graph.Output {
	if n == 1 {
		return of
	}
	common := commonInputs(s)
	var out []graph.Output
	for k := range n {
		nodes := graph.Transform(nodesOf(of), func(op *graph.Op, _ []graph.Node) []graph.Node {
			if !op.IsInput() || common(op.Out[0].Name()) {
				return nil
			}
			in := op.Out[0]
			shape := slices.Clone(in.Shape())
			for i, d := range shape {
				if !d.Static() {
					shape[i].Sym = ofClient(k) + d.Sym
				}
			}
			return []graph.Node{s.Graph().Input(ofClient(k)+in.Name(), in.DType(), shape)}
		})
		for i, node := range nodes {
			out = append(out, graph.Output{Name: ofClient(k) + of[i].Name, Node: node})
		}
	}
	return out
}

// commonInputs tells which inputs are the same for all clients of a round: shared parameters as the server sent them.
func commonInputs(s *method.Scope) func(input string) bool {
	shared := s.SharedNames()
	return func(input string) bool {
		name, ok := strings.CutPrefix(input, method.ReceivedInput+"/")
		return ok && slices.Contains(shared, name)
	}
}

func ofClient(k int) string { return fmt.Sprint(k, "/") }

func nodesOf(outputs []graph.Output) []graph.Node {
	out := make([]graph.Node, len(outputs))
	for i, o := range outputs {
		out[i] = o.Node
	}
	return out
}

// runAll runs a graph of several clients, or of one, and gives each its outputs.
func runAll[T any, M ~map[string]T](ctx context.Context, run func(context.Context, tensor.Map, ort.Values) (M, error),
	inputs []ort.ValueInfo, feeds []feed) ([]M, error) {
	if len(feeds) == 1 {
		out, err := run(ctx, feeds[0].now, feeds[0].held)
		return []M{out}, err
	}
	now, held, outs := tensor.Map{}, ort.Values{}, make([]M, len(feeds))
	for _, in := range inputs {
		from, name := feeds[0], in.Name
		at, rest, _ := strings.Cut(in.Name, "/")
		if k, err := strconv.Atoi(at); err == nil {
			from, name = feeds[k], rest
		}
		if v := from.held[name]; v != nil {
			held[in.Name] = v
		} else {
			now[in.Name] = from.now[name]
		}
	}
	got, err := run(ctx, now, held)
	for k := range outs {
		outs[k] = M{}
	}
	for name, v := range got {
		at, rest, _ := strings.Cut(name, "/")
		if k, err := strconv.Atoi(at); err == nil {
			outs[k][rest] = v
		}
	}
	return outs, err
}

// TrainTogether is Execute of instructions to train, for clients of one group (see Groups).
func (w *Worker) TrainTogether(ctx context.Context, jobs []Job) ([]message.Reply, []message.ClientState, error) {
	replies, next, err := w.trainAll(ctx, jobs, w.shared)
	for i := 0; i < len(replies) && err == nil; i++ {
		err = checkReply(jobs[i], replies[i])
	}
	return replies, next, err
}
