package message

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// A reply counts if it has what its instruction asks for, with numbers that are possible.
func TestCheckReplies(t *testing.T) {
	nan := tensor.Scalar(float32(math.NaN()))
	shared := tensor.Map{"ctx": tensor.New(2, 3)}
	train, ask := Instruction{Kind: Train, Shared: shared}, Instruction{Kind: Compute, Shared: shared}
	guarded := Instruction{Kind: Train, Shared: shared, Guarded: tensor.Specs{{Name: "masked"}}}
	good := method.Upload{N: 1, Shared: shared}
	masked := method.Upload{N: 1, Extra: tensor.Map{"masked": tensor.New(1)}}
	one := metrics.Compute(metrics.Examples{Scores: tensor.Of([]float32{1, 0}, 1, 2), Labels: []int64{0}}, false)
	many := metrics.Statistics{"correct": {maxTested}, "own_correct": {0}, "f1": {1}, "brier": {0},
		"confidence_bins": append(make([]float64, 42), maxTested, maxTested, maxTested)}
	test := Instruction{Kind: Test}
	const neither, lacks = "the scores have neither a global nor a personal part", "the reply lacks the statistic brier"
	for _, c := range []struct {
		o    Instruction
		r    Reply
		says string
	}{
		{train, Reply{Upload: good}, ""},
		{train, Reply{Upload: good, Stats: Stats{Loss: MaxLoss}}, ""},
		{train, Reply{Upload: good, Stats: Stats{Loss: -MaxLoss}}, ""},
		{train, Reply{Upload: good, Stats: Stats{Loss: 1.1e6}},
			"the loss 1.1e+06 is invalid: it must lie between -1e+06 and 1e+06"},
		{train, Reply{Upload: good, Stats: Stats{Loss: math.NaN()}}, "the loss NaN is invalid"},
		{train, Reply{Upload: method.Upload{N: 0, Shared: shared}},
			"the upload counts 0 examples; it must count 1 or more"},
		{train, Reply{Upload: method.Upload{N: 1, Shared: tensor.Map{"ctx": tensor.New(3, 2)}}},
			"the upload's parameters: the tensor ctx is"},
		{train, Reply{Upload: method.Upload{N: 1, Shared: tensor.Map{"ctx": tensor.New(2, 3),
			"more": tensor.New(1)}}}, "more"},
		{train, Reply{Upload: method.Upload{N: 1, Shared: shared, Extra: tensor.Map{"x": nan}}},
			"upload extra/x holds NaN at element 0; lower train.lr or set train.clip_norm"},
		{guarded, Reply{Upload: masked}, ""},
		{guarded, Reply{Upload: method.Upload{N: 2, Extra: masked.Extra}},
			"has parameters [] and counts 2 examples; it must be protected"},
		{guarded, Reply{Upload: good}, "has parameters [ctx] and counts 1 examples; it must be protected"},
		{guarded, Reply{Upload: method.Upload{N: 1, Extra: tensor.Map{"masked": nan}}},
			"upload extra/masked holds NaN"},
		{ask, Reply{Upload: method.Upload{N: 1}}, ""},
		{ask, Reply{Upload: good}, "the answer to a statistic has parameters [ctx]; it must have none"},
		{ask, Reply{Upload: method.Upload{N: 0}}, "the answer counts 0 examples; it must count 1 or more"},
		{ask, Reply{Upload: method.Upload{N: 1, Extra: tensor.Map{"x": nan}}}, "upload extra/x holds NaN"},
		{test, Reply{Scores: Scores{Examples: 1, Global: one}}, ""},
		{test, Reply{Scores: Scores{Examples: 1, Personal: one}}, ""},
		{test, Reply{Scores: Scores{Examples: maxTested, Personal: many}}, ""},
		{test, Reply{Scores: Scores{Examples: maxTested + 1, Personal: many}},
			"the scores are of 4294967297 examples; 1 to 4294967296 are"},
		{test, Reply{Scores: Scores{Examples: 0, Global: one}}, "the scores are of 0 examples"},
		{test, Reply{Scores: Scores{Examples: 1}}, neither},
		{test, Reply{Scores: Scores{Examples: 1, Global: one, Personal: metrics.Statistics{}}}, lacks},
		{test, Reply{Scores: Scores{Examples: 1, Global: metrics.Statistics{}, Personal: one}}, lacks},
		{test, Reply{}, "the scores are of 0 examples"},
		{test, Reply{Upload: masked}, "the reply to a test has unexpected tensors [extra/masked]"},
		{test, Reply{Upload: good}, "the reply to a test has unexpected tensors [shared/ctx]"},
		{Instruction{Kind: Validate}, Reply{}, ""},
		{Instruction{Kind: Validate}, Reply{Scores: Scores{Examples: 1}}, neither},
		{Instruction{Kind: Validate}, Reply{Scores: Scores{Global: one}}, "the scores are of 0 examples"},
		{Instruction{Kind: Validate}, Reply{Scores: Scores{Personal: one}}, "the scores are of 0 examples"},
	} {
		err := c.o.Check(c.r)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v: %v, want %q", c.o.Kind, c.r, err, c.says)
		}
	}
}

// By hand: the difference of (4,6) and (1,2) has the norm 5. Four zeros count as ones, whose norm is 2, and the norm of
// (30,40,0,0) is 50; 50 times that is accepted.
func TestUpdateNorms(t *testing.T) {
	sent, up := tensor.Map{"a": tensor.Of([]float32{1, 2}, 2)}, tensor.Map{"a": tensor.Of([]float32{4, 6}, 2)}
	if n := UpdateNorm(sent, up); n != 5 || up["a"].Data[0] != 4 {
		t.Error(n, up)
	}
	for most, m := range map[float64]tensor.Map{100: {"a": tensor.New(2), "b": tensor.New(2)},
		2500: {"a": tensor.Of([]float32{30, 40}, 2), "b": tensor.New(2)}} {
		if got := MaxUpdateNorm(m); got != most {
			t.Errorf("%v: %v", m, got)
		}
	}
}

func TestKinds(t *testing.T) {
	for k, want := range map[Kind][2]bool{Train: {}, Compute: {}, Test: {true, true}, Validate: {true}, Adapt: {true}} {
		if got := [2]bool{k.Tests(), Instruction{Kind: k, Confusion: true}.Labels()}; got != want {
			t.Errorf("%s: %v", k, got)
		}
	}
	if (Instruction{Kind: Test}).Labels() {
		t.Error("labels that nobody asked for")
	}
}

// An instruction to one client has its own extras and none of others, also when it travels.
func TestInstructionsTravel(t *testing.T) {
	value := func(v float32) tensor.Map { return tensor.Map{"x": tensor.Scalar(v)} }
	o := Instruction{Kind: Train, Clients: []int{1, 2}, Shared: value(1), Broadcast: value(2),
		PerClient: map[int]tensor.Map{1: value(3), 3: value(4)}}
	for client, want := range map[int]string{1: "down/x 2 each/x 3 shared/x 1 ", 2: "down/x 2 shared/x 1 "} {
		one := o.ForClient(client)
		m, got := one.Tensors(), ""
		for _, name := range m.Names() {
			got += fmt.Sprint(name, " ", m[name].Data[0], " ")
		}
		if got != want || !slices.Equal(one.Clients, []int{client}) {
			t.Errorf("client %d gets %s", client, got)
		}
		bare := Instruction{Kind: Train, Clients: one.Clients}
		back, err := bare.WithTensors(m)
		again, err2 := Reencode(one)
		if err != nil || err2 != nil || !reflect.DeepEqual(back, one) || !reflect.DeepEqual(again, one) {
			t.Errorf("%+v, %+v, %v, %v", back, again, err, err2)
		}
	}
	for says, c := range map[string]tensor.Map{
		"an instruction must be for one client; this one is for 2":                  tensor.Map{}.Put("down", value(1)),
		`a message has unexpected tensors, outside of [shared down each]: ["../x"]`: {"../x": tensor.Scalar(1)},
		`a message has unexpected tensors, outside of [shared down each]: ["shared/x" "sharedx"]`: {
			"shared/x": tensor.Scalar(1), "sharedx": tensor.Scalar(1)},
	} {
		if _, err := o.WithTensors(c); fmt.Sprint(err) != says {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// What arrives of a test are the tables of evaluations that the reply has.
func TestTablesTravel(t *testing.T) {
	table := tensor.OfInts([]int64{0, 0, 1}, 1, 3)
	s := Scores{Global: metrics.Statistics{"confusion": {0, 0, 1}},
		Personal: metrics.Statistics{"confusion": {1, 0, 2}}}
	m := Reply{Scores: s}.Tensors()
	if !slices.Equal(m.Names(), []string{"statistics/global/confusion", "statistics/personal/confusion"}) {
		t.Fatal(m.Names())
	}
	got, err := Instruction{}.WithReplyTensors(Reply{Scores: Scores{Global: metrics.Statistics{},
		Personal: metrics.Statistics{}}}, m)
	if err != nil || !reflect.DeepEqual(got.Scores, s) {
		t.Errorf("%+v, %v", got.Scores, err)
	}
	none := Reply{Scores: Scores{Global: metrics.Statistics{}}}
	for says, m := range map[string]tensor.Map{
		`the reply has the unexpected statistics ["confusion"]: it lacks the personal evaluation`: {
			"statistics/personal/confusion": table},
		`the reply has the unexpected statistic "f1"`: {"statistics/global/f1": table},
		`a message has unexpected tensors, outside of [global personal]: ["x/confusion"]`: {
			"statistics/x/confusion": table},
		`a message has unexpected tensors, outside of [shared extra statistics]: ["packed/x"]`: {"packed/x": table},
	} {
		if _, err := (Instruction{}).WithReplyTensors(none, m); fmt.Sprint(err) != says {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// doubles is a codec whose packed tensors are half of the difference to the sent ones.
type doubles struct{ method.Codec }

func (doubles) Unpack(sent, packed tensor.Map) (tensor.Map, error) {
	if len(packed) == 0 {
		return nil, fmt.Errorf("nothing")
	}
	return sent.Clone().Axpy(2, packed), nil
}

func TestCompressedUploads(t *testing.T) {
	value := func(v float32) tensor.Map { return tensor.Map{"x": tensor.Scalar(v)} }
	o := Instruction{Kind: Train, Shared: value(1), Codec: doubles{}}
	got, err := o.WithReplyTensors(Reply{}, tensor.Map{}.Put("packed", value(3)))
	if err != nil || got.Upload.Shared["x"].Data[0] != 7 || got.Upload.Packed["x"].Data[0] != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if names := UploadTensors(got.Upload).Names(); !slices.Equal(names, []string{"packed/x"}) {
		t.Error(names)
	}
	for says, m := range map[string]tensor.Map{"the compressed upload: nothing": nil,
		"the compressed upload's x holds +Inf at element 0; " + DivergenceHint: {
			"packed/x": tensor.Scalar(float32(math.Inf(1)))}} {
		if _, err := o.WithReplyTensors(Reply{}, m); fmt.Sprint(err) != says {
			t.Errorf("%v, want %s", err, says)
		}
	}
	lost := Reply{Client: 3, Stats: Stats{Loss: 2}}
	if got, err := o.ReencodeReply(lost); err != nil || !reflect.DeepEqual(got, lost) {
		t.Errorf("a reply without tensors: %+v, %v", got, err)
	}
	o.Kind = Compute // an answer is not compressed
	if got, err := o.WithReplyTensors(Reply{}, tensor.Map{}.Put("extra", value(3))); err != nil ||
		got.Upload.Extra["x"].Data[0] != 3 {
		t.Error(got, err)
	}
}

// Replies count in the order of their clients; a sum stands for the clients that it is of.
func TestClientsOf(t *testing.T) {
	replies := []Reply{{Client: 4, Upload: method.Upload{N: 2}}, {Client: method.AggregatedClient, Sum: []int{7, 1}},
		{Client: 2}}
	if got := ClientsOf(replies); !slices.Equal(got, []int{1, 2, 4, 7}) {
		t.Error(got)
	}
	if got := UploadsOf(replies); len(got) != 3 || got[0].N != 2 {
		t.Error(got)
	}
	SortReplies(replies)
	if replies[1].Client != 2 || replies[2].Client != 4 {
		t.Error(replies)
	}
}

// ctxMethod has a shared prompt as wide as the text tower and a private one.
type ctxMethod struct{ method.Method }

func (ctxMethod) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "ctx", Shape: []int{2, t.Width}},
		{Name: "own", Owner: method.Private, Shape: []int{t.Dim}}}
}

func TestParticipants(t *testing.T) {
	a := Participant{Joined: true, Domain: "x", Task: method.ClientSpec{Client: 0, Backbone: "a", Width: 4, Dim: 3}}
	b := Participant{Task: method.ClientSpec{Client: 1, Backbone: "b", Width: 5, Dim: 7}}
	goldentest.NoError(t, CheckAveraged(a.Task, a.Task, ctxMethod{}))
	goldentest.WantError(t, CheckAveraged(b.Task, a.Task, ctxMethod{}),
		"parameter ctx is [2 5] on client 1 (backbone b) and [2 4] on client 0 (backbone a); it cannot be averaged: ")
	b.Task.Width = 4
	if err := CheckAveraged(b.Task, a.Task, ctxMethod{}); err != nil {
		t.Errorf("private parameters differ only: %v", err)
	}
	if got := ClientInfos([]Participant{a, b}); !slices.Equal(got,
		[]method.ClientInfo{{Domain: "x", Backbone: "a", Dim: 3}, {}}) {
		t.Errorf("%+v", got)
	}
}

// visionMethod has a shared prompt of the image tower where there is one.
type visionMethod struct{ ctxMethod }

func (m visionMethod) Params(t method.ClientSpec) []method.Param {
	if t.Dim == 0 {
		return m.ctxMethod.Params(t)
	}
	return append(m.ctxMethod.Params(t), method.Param{Name: "vision", Shape: []int{t.Dim}})
}

// A client may lack a parameter that the first one has, but the server has none that the first one lacks.
func TestParametersOfSomeClients(t *testing.T) {
	without, with := method.ClientSpec{Width: 4}, method.ClientSpec{Client: 4, Backbone: "b", Width: 4, Dim: 5}
	goldentest.NoError(t, CheckAveraged(without, with, visionMethod{}))
	goldentest.WantError(t, CheckAveraged(with, without, visionMethod{}),
		"parameter vision is [5] on client 4 (backbone b) and absent on client 0 ")
}

// A checkpoint returns to each layer of a cohort its own text and tensors.
func TestSavedLayers(t *testing.T) {
	var saved Saved
	var text string
	err := errors.Join(saved.Put("a", "x", tensor.Map{"v": tensor.Scalar(1)}), saved.Put("b", "y", nil))
	if m, err2 := saved.Get("a", &text); err != nil || err2 != nil || text != "x" || m["v"].Data[0] != 1 {
		t.Errorf("%q, %v, %v, %v", text, m, err, err2)
	}
}

func TestClientStateTravels(t *testing.T) {
	s := ClientState{Private: tensor.Map{"a": tensor.Scalar(1)}, Own: tensor.Map{"b": tensor.Scalar(2)},
		Method: tensor.Map{"c/d": tensor.OfInts([]int64{3}, 1)}}
	if back, err := ParseClientState(s.Tensors()); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%+v, %v", back, err)
	}
	if _, err := ParseClientState(tensor.Map{"shared/ctx": nil}); err == nil || err.Error() !=
		`a message has unexpected tensors, outside of [private own kept]: ["shared/ctx"]` {
		t.Error(err)
	}
}
