package methodtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// trace: a trace holds the tensors that docs/formats.md names, no others, in the stated shapes. Images are unit rows. A
// client's upload is its last step's result, and the next round starts from the merged parameters.
func (c Case) trace(t *testing.T) {
	experiment := c.all(t)
	_, rec := c.plainAll(t)

	want, may := map[string]bool{}, map[string]bool{}
	all := func(known map[string]bool) func(at string, names ...string) {
		return func(at string, names ...string) {
			for _, n := range names {
				known[at+n] = true
			}
		}
	}

	add, allow := all(want), all(may)
	at := func(round int, f func(int) []string) []string {
		if f == nil {
			return nil
		}
		return f(round)
	}

	names := c.Names
	learned := slices.Concat(names.Shared, names.Private)
	add("init/", names.Shared...)
	add("start/down/", names.Broadcast...)
	for _, client := range experiment.Clients {
		add(fmt.Sprintf("start/c%d/down/", client.ID), names.PerClient...)
	}

	steps := map[string]trace.StepRecord{}
	for _, s := range rec.Steps {
		steps[fmt.Sprintf("r%d/c%d/s%d/", s.Round, s.Client, s.Step)] = s
	}

	for round := range 2 {
		for _, client := range experiment.Clients {
			path := fmt.Sprintf("r%d/c%d/", round, client.ID)
			add(path+"begin/", learned...)
			add(path+"down/", names.Broadcast...)
			add(path+"down/", names.PerClient...)
			if round > 0 {
				add(path+"down/", names.Later...)
			}

			add(path+"kept/", at(round, names.State)...)
			add(path+"upload/", names.Shared...)
			add(path+"upload/", names.Up...)
			loss, scores := c.inputs(t, experiment, client)
			if round == 1 { // clients are tested in every second round
				add(path+"eval/", "logits", "label", "image")
				add(path+"eval/", names.Reads...)
				add(path+"eval/", withoutRows(scores)...)
				if names.Memory {
					add(path+"memory/", "image", "label")
				}
			}

			add(path+"draw/", names.TurnDraw...)
			if !c.learnsNothing() {
				add(path+"constant/", names.Constant...)
				for _, in := range loss {
					allow(path+"prepared/", in.String())
				}
			}

			// Two epochs of batches of 4; a last one that is not full is left out unless it is the only one.
			for index := range 2 * max(1, client.Train.Len()/4) {
				if c.learnsNothing() {
					break
				}

				step := fmt.Sprintf("%ss%d/", path, index)
				add(step, "image", "label", "loss")
				add(step, names.Reads...)
				add(step+"grad/", slices.DeleteFunc(slices.Clone(learned), func(name string) bool {
					return names.Frozen != nil && slices.Contains(names.Frozen(round, index/max(1,
						client.Train.Len()/4)), name)
				})...)
				add(step+"after/", learned...)
				add(step+"draw/", names.Draw...)
				for _, in := range loss {
					if in.Kind == method.ScalarInput {
						add(step, in.String())
					}
				}

				allow(step+"grad_raw/", learned...)
				c.phase(t, steps[step], step, index/max(1, client.Train.Len()/4), learned)
				c.rawGradients(t, rec, step, steps[step], learned)
				c.complete(t, rec, path, step, loss)
			}
		}

		add(fmt.Sprintf("r%d/merged/", round), names.Shared...)
		add(fmt.Sprintf("r%d/draw/", round), names.MergeDraw...)
		add(fmt.Sprintf("r%d/down/", round), names.Broadcast...)
		add(fmt.Sprintf("r%d/kept/", round), at(round, names.ServerState)...)
		if q := names.Statistic; q != nil && (round == 0 || q.Every) {
			at := fmt.Sprintf("r%d/statistic/%s/", round, q.Name)
			add(at+"aggregate/", q.Broadcast...)
			for k := range experiment.Clients {
				add(fmt.Sprintf("%sc%d/", at, k), append(q.Answer, "image", "label")...)
				add(fmt.Sprintf("%saggregate/c%d/", at, k), q.PerClient...)
				add(fmt.Sprintf("r%d/c%d/down/", round, k), slices.Concat(q.Broadcast, q.PerClient)...)
			}
			if q.Every {
				add(fmt.Sprintf("r%d/down/", round), q.Broadcast...)
			}
		}
	}

	for name := range want {
		if rec.Tensors[name] == nil {
			t.Errorf("the trace lacks %s", name)
		}
	}

	for name, got := range rec.Tensors {
		if !want[name] && !may[name] && !strings.HasPrefix(name, "start/kept/") {
			t.Errorf("the trace has %s", name)
		}

		if strings.HasSuffix(name, "/loss") && !slices.Equal(got.Shape, []int{1}) {
			t.Errorf("%s is %v, want [1]", name, got)
		}

		if strings.HasSuffix(name, "/label") && (!got.IsInt() || len(got.Shape) != 1) {
			t.Errorf("%s is %v, want int64[B]", name, got)
		}

		if strings.HasSuffix(name, "/draw/projector") {
			side, n := Width, len(got.Shape)
			if slices.Contains(c.Names.Reads, method.PixelsInput) {
				side = ToyVision
			}
			if n < 2 || !slices.Equal(got.Shape[n-2:], []int{side, side}) {
				t.Errorf("%s is %v, want [...,%d,%d]", name, got, side, side)
			}
		}

		if strings.HasSuffix(name, "/image") && !(c.Loose && strings.Contains(name, "/s")) {
			unitRows(t, name, got)
		}
	}

	for _, name := range names.Shared {
		last := fmt.Sprintf("r0/c0/s%d/after/%s", 3, name) // client 0 has 9 examples, so 2 batches in each of 2 epochs
		if equal(rec.Tensors[last], rec.Tensors["r0/c0/upload/"+name]) == c.Noised {
			t.Errorf("client 0 uploaded %s as its last step left it: %v, want %v", name, c.Noised, !c.Noised)
		}
	}

	for _, name := range names.Private {
		if equal(rec.Tensors["r0/c0/s3/after/"+name],
			rec.Tensors["r1/c0/begin/"+name]) == slices.Contains(names.Exchanged, name) {
			t.Errorf("client 0 started round 1 from the %s it kept: %v", name, slices.Contains(names.Exchanged, name))
		}
	}

	for _, name := range names.Broadcast {
		if !equal(rec.Tensors["r0/down/"+name], rec.Tensors["r1/c2/down/"+name]) {
			t.Errorf("client 2 did not get %s as the server left it", name)
		}
	}
}

func unitRows(t *testing.T, name string, x *tensor.Tensor) {
	if len(x.Shape) != 2 {
		t.Errorf("%s is %v, want [B,D]", name, x)
		return
	}

	for i := range x.Shape[0] {
		if norm := x.Row(i).Norm(); math.Abs(norm-1) > 1e-5 {
			t.Errorf("%s: row %d has norm %g", name, i, norm)
		}
	}
}

// inputs returns the inputs of a client's loss, with those that its host functions read, and of the class scores.
func (c Case) inputs(t *testing.T, experiment *spec.Experiment, client *spec.Client) (loss, scores []method.Input) {
	t.Helper()
	scope, logits, node := method.LossOf(experiment.Method, experiment.Task(client))
	scores, loss = method.Inputs(logits), scope.Reads(node)
	goldentest.NoError(t, scope.Graph().Err())
	return loss, scores
}

// withoutRows returns the names of inputs that are neither rows of data nor computed on the host.
func withoutRows(inputs []method.Input) (out []string) {
	for _, in := range inputs {
		if !spec.IsRow(in) && in.Kind != method.HostInput && in != method.MemoryImage && in != method.MemoryLabel {
			out = append(out, in.String())
		}
	}
	return out
}

// complete: every input of a step's loss is in the trace.
func (c Case) complete(t *testing.T, rec *trace.Recorder, turn, step string, inputs []method.Input) {
	t.Helper()
	for _, in := range inputs {
		places := []string{step + in.String()}
		switch in.Kind {
		case method.ParamInput, method.ReceivedInput, method.BeforeInput:
			places = []string{turn + "begin/" + in.Name} // what came before is the end of an earlier turn
		case method.BroadcastInput, method.StateInput:
			places = []string{turn + in.String(), turn + "prepared/" + in.String()}
		case method.HostInput:
			continue // a function of parameters, which complete sees
		case method.ClientInput:
			places = []string{turn + "prepared/" + in.String(), turn + "memory/" + in.Name}
		}
		if !slices.ContainsFunc(places, func(at string) bool { return rec.Tensors[at] != nil }) {
			t.Errorf("the loss of %s reads %s, and the trace has none of %v", step, in, places)
		}
	}
}

// phase: a step records its pass over the data and the parameters that it does not change.
func (c Case) phase(t *testing.T, record trace.StepRecord, step string, epoch int, learned []string) {
	t.Helper()
	var want []string
	if c.Names.Frozen != nil {
		want = slices.DeleteFunc(slices.Clone(c.Names.Frozen(record.Round, epoch)), func(name string) bool {
			return !slices.Contains(learned, name)
		})
		slices.Sort(want)
	}

	if record.Epoch != epoch || !slices.Equal(record.Frozen, want) {
		t.Errorf("%s is of pass %d and leaves %v, want pass %d and %v", step, record.Epoch, record.Frozen, epoch, want)
	}
}

// rawGradients: the trace has the gradient of the loss separately where the optimizer gets another gradient or none.
func (c Case) rawGradients(t *testing.T, rec *trace.Recorder, step string, record trace.StepRecord, learned []string) {
	t.Helper()
	for _, name := range learned {
		raw, grad := rec.Tensors[step+"grad_raw/"+name], rec.Tensors[step+"grad/"+name]
		switch {
		case raw == nil && grad == nil && !slices.Contains(record.Frozen, name):
			t.Errorf("%s has neither gradient of %s", step, name)
		case grad == nil && !slices.Contains(record.Frozen, name):
			t.Errorf("%s has no gradient of %s, which is not frozen", step, name)
		case raw != nil && grad != nil && equal(raw, grad):
			t.Errorf("%s has the gradient of %s twice", step, name)
		}
	}
}
