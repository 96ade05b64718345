package client_test

import (
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/runtime/tensor"
)

// countedRows counts how often rows are read.
type countedRows struct {
	spec.RowReader
	reads *atomic.Int64
}

func (c countedRows) Read(index []int) (*tensor.Tensor, error) {
	c.reads.Add(1)
	return c.RowReader.Read(index)
}

// countReads returns test data whose reads are counted.
func countReads(f *spec.Features, views int, reads *atomic.Int64) *spec.Features {
	return &spec.Features{Views: slices.Repeat([]spec.RowReader{countedRows{f.Views[0], reads}}, views), Class: f.Class}
}

// TestSameTestOnce: of four clients two train in each of three rounds. Test data is read once for the server's
// parameters in every round, and once more only if the client's private parameters changed. In round 0 they changed
// where the client trained (a client without private parameters is tested with the server's): 4 + 2 reads. Later rounds
// are alike, since private parameters stay until the client trains again. An evaluation set that all clients share is
// read once for the server's parameters, and once for each client that ever trained. If views of the images are drawn
// anew, nothing is remembered: all rows are read for both evaluations, 3 * 2 * 4 times. If both views are equal, the
// records are equal too.
func TestSameTestOnce(t *testing.T) {
	m := buildMethod(t, "promptfl", nil, nil)
	run := func(views int) (r *engine.Result, own, exam int64, trained int) {
		var ownReads, examReads atomic.Int64
		e := withMethod(m)
		e.Clients = methodtest.ClientsOfOneBackbone(9, 5, 6, 3)
		e.Plan.Participation = 0.5
		for _, c := range e.Clients {
			c.Test = countReads(c.Test, views, &ownReads)
		}
		e.EvaluationSets = []spec.EvaluationSet{{Name: "other", Test: map[string]*spec.Features{
			"toy-a": countReads(methodtest.Rows(300, 8, 5, len(methodtest.Classes)), views, &examReads)}}}
		r = mustRun(t, e, engine.Settings{Workers: 2})
		ever := map[int]bool{}
		for _, rec := range r.Records {
			for _, c := range rec.Clients {
				ever[c] = true
			}
		}
		return r, ownReads.Load(), examReads.Load(), len(ever)
	}
	got, own, exam, trained := run(1)
	if want := int64(3 * (4 + 2)); own != want {
		t.Errorf("test data was read %d times, want %d", own, want)
	}
	if want := int64(1 + trained); exam != want {
		t.Errorf("the evaluation set was read %d times, want %d", exam, want)
	}
	want, all, _, _ := run(2)
	if all < 3*2*4 {
		t.Errorf("with drawn views test data was read %d times", all)
	}
	for i := range want.Records {
		want.Records[i].Seconds, got.Records[i].Seconds = 0, 0
		want.Records[i].Phases, got.Records[i].Phases = nil, nil
		if !reflect.DeepEqual(want.Records[i], got.Records[i]) {
			t.Errorf("round %d: %+v, want %+v", i, got.Records[i], want.Records[i])
		}
	}
}

// TestScoresStayWithoutFeatures: a client that does not train between two tests is tested once, though its class
// features are not kept. With clients that are computed together, nothing is computed ahead for it either.
func TestScoresStayWithoutFeatures(t *testing.T) {
	for _, together := range []int{1, 2} {
		var reads atomic.Int64
		e := build(t, "promptfl", nil, nil)
		e.BatchClients = together
		c := e.Clients[0]
		c.Test = countReads(c.Test, 1, &reads)
		w := newWorker(t, e, client.Settings{})
		test := func(round int) {
			o := sentTo(e, message.Test)
			o.Round = round
			job := client.Job{Client: c, Instruction: o, State: client.Remembers(message.ClientState{})}
			if _, err := w.Groups(t.Context(), []client.Job{job}, 1); err != nil {
				t.Fatal(err)
			}
			if got := w.ClassFeatures(); got != together-1 && round == 0 || got != 0 && round > 0 {
				t.Errorf("%d clients together: %d class features ahead of round %d", together, got, round)
			}
			if _, err := w.Test(t.Context(), c, o, message.ClientState{}); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 3 {
			test(round)
			w.DropClassFeatures()
		}
		if got := reads.Load(); got != 1 {
			t.Errorf("%d clients together: test data were read %d times, want 1", together, got)
		}
	}
}
