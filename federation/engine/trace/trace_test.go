package trace

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// A step is recorded with its batch, its draws, its loss and its gradients, under names that begin with round and
// client. Raw gradients are recorded where the optimizer gets others, or none. A copy is kept of each tensor.
func TestStep(t *testing.T) {
	rec := NewRecorder()
	c := NewClient(rec, 2, 7)
	value := func(v float32) *tensor.Tensor { return tensor.Of([]float32{v}, 1) }
	same := value(4)
	c.Step(Step{StepRecord: StepRecord{Step: 3, Epoch: 1, LR: .5}, Batch: tensor.Map{"image": value(1)},
		Draws: tensor.Map{"noise": value(2)}, Scalars: map[string]float64{"lambda": .25}, Loss: value(3),
		Raw:   tensor.Map{"same": same, "clipped": value(5), "frozen": value(6)},
		Grads: tensor.Map{"same": value(4), "clipped": value(7)}})
	c.After(3, tensor.Map{"same": same})
	c.Put("nothing", nil)
	same.Data[0] = 9
	want := map[string]float32{"image": 1, "draw/noise": 2, "scalar/lambda": .25, "loss": 3, "grad/same": 4,
		"grad/clipped": 7, "grad_raw/clipped": 5, "grad_raw/frozen": 6, "after/same": 4}
	for name, v := range want {
		if got := rec.Tensors["r2/c7/s3/"+name]; got == nil || got.Data[0] != v {
			t.Errorf("%s is %v, want %v", name, got, v)
		}
	}
	if len(rec.Tensors) != len(want) {
		t.Errorf("the trace has %v", rec.Tensors.Names())
	}
	if want := []StepRecord{{Round: 2, Client: 7, Step: 3, Epoch: 1, LR: .5}}; !reflect.DeepEqual(rec.Steps, want) {
		t.Errorf("%+v", rec.Steps)
	}
	if !c.Enabled() {
		t.Error("it traces")
	}
	none := NewClient(nil, 0, 0) // does nothing
	none.Step(Step{Loss: same})
	none.After(0, tensor.Map{"same": same})
	none.Put("same", same)
	if none.Enabled() {
		t.Error("it traces nothing")
	}
	TraceAll(rec, "server", tensor.Map{"ctx": same})
	if v := rec.Tensors["server/ctx"]; v == nil || v.Data[0] != 9 {
		t.Error(v)
	}
}

// fiveExamples is a cohort whose client 1 answers with five examples.
type fiveExamples struct{ message.Cohort }

func (fiveExamples) Run(context.Context, message.Instruction) ([]message.Reply, error) {
	return []message.Reply{{Client: 1, Upload: method.Upload{Client: 1, N: 5}}}, nil
}
func (fiveExamples) Accept(int, []int) error { return nil }
func (fiveExamples) Report() message.Report  { return message.Report{} }

// The server's first state is recorded once, then what the aggregate of a statistic changed, and each merge. A merge
// fails that drew numbers which the trace lacks.
func TestServer(t *testing.T) {
	rec, one := NewRecorder(), func(name string) tensor.Map { return tensor.Map{name: tensor.Scalar(1)} }
	global := &method.Global{Shared: one("ctx"), Broadcast: one("sent"), State: one("own"),
		PerClient: map[int]tensor.Map{1: one("each")}}
	traced := Server(fiveExamples{}, rec, global)
	for _, kind := range []message.Kind{message.Compute, message.Train} {
		if _, err := traced.Run(t.Context(), message.Instruction{Kind: kind, Statistic: "mean"}); err != nil {
			t.Fatal(err)
		}
		global.Broadcast["after "+string(kind)] = tensor.Scalar(2)
	}
	err := traced.Accept(0, []int{1})
	traced.Report()
	want := "init/ctx r0/down/after compute r0/down/after train r0/down/sent r0/kept/own r0/merged/ctx " +
		"r0/statistic/mean/aggregate/after compute start/c1/down/each start/down/sent start/kept/own"
	if got := strings.Join(rec.Tensors.Names(), " "); got != want || err != nil ||
		!reflect.DeepEqual(rec.Rounds, []RoundRecord{{Merged: []int{1}, Examples: []int{5}}}) {
		t.Errorf("%s, %+v, %v, want %s", got, rec.Rounds, err, want)
	}
	global.Rand("merge").Uint64()
	goldentest.WantError(t, traced.Accept(1, nil), "round 2, merge: the trace lacks 1 of the random numbers")
}

// The folder has the steps in the order of rounds, clients and steps, and the tensors with the embeddings of words.
func TestWrite(t *testing.T) {
	rec := NewRecorder()
	order := []StepRecord{{Round: 0, Client: 1, Step: 5}, {Round: 0, Client: 2, Step: 0},
		{Round: 0, Client: 2, Step: 1}, {Round: 3, Client: 0, Step: 0}}
	for _, i := range []int{3, 2, 1, 0} {
		rec.Step(order[i])
	}
	rec.Round(RoundRecord{Round: 0, Merged: []int{1, 2}, Examples: []int{5, 6}})
	rec.Put("a", tensor.Scalar(1))
	dir := filepath.Join(t.TempDir(), "new", "folder")
	info := Info{Classes: []string{"cat"}, Words: tensor.Map{"0/a photo": tensor.Scalar(2)}, Clients: []ClientInfo{
		{Parameters: []Parameter{{Name: "a", Words: "the"}, {Name: "b"}}},
		{Parameters: []Parameter{{Name: "a", Words: "a"}, {Name: "c", Words: "the"}}}}}
	goldentest.NoError(t, rec.Write(dir, info))
	b := filetest.Read(t, filepath.Join(dir, InfoFile))
	var got Info
	if err := json.Unmarshal(b, &got); err != nil || got.Version != 3 || !reflect.DeepEqual(got.Steps, order) ||
		!reflect.DeepEqual(got.Rounds, rec.Rounds) || strings.Contains(string(b), "photo") {
		t.Errorf("%s, %v", b, err)
	}
	m, _, err := safetensors.ReadFile(filepath.Join(dir, TensorsFile))
	if err != nil || !slices.Equal(m.Names(), []string{"a", "words/0/a photo"}) || len(rec.Tensors) != 1 {
		t.Errorf("%v, %v", m.Names(), err)
	}
	if texts := got.Texts(); !slices.Equal(texts, []string{"a", "the"}) {
		t.Errorf("%q", texts)
	}
	if err := rec.Write(filepath.Join(dir, InfoFile), info); err == nil ||
		!strings.HasPrefix(err.Error(), "trace: mkdir ") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, InfoFile)); err != nil {
		t.Error(err)
	}
}
