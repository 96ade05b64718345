package state

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// A checkpoint restores all of the server's state, also the broadcast of a client that has never trained.
func TestCheckpointHoldsAll(t *testing.T) {
	dir := t.TempDir()
	one := func(v float32) tensor.Map { return tensor.Map{"a/b": tensor.Of([]float32{v}, 1)} }
	g := method.Global{Round: 4, Shared: one(1), Broadcast: one(2), State: one(3),
		PerClient: map[int]tensor.Map{1: one(4), 10: one(5)}}
	var cohort message.Saved
	goldentest.NoError(t, cohort.Put("layer", map[int]Location{1: {2, 3, 4, "x", nil}}, one(6)))
	goldentest.NoError(t, SaveCheckpoint(dir, &g, Checkpoint{Round: 4, Cohort: cohort,
		Record: record.Record{Round: 3, Seconds: .5}}))
	var back method.Global
	p, ok, err := LoadCheckpoint(dir, &back)
	var places map[int]Location
	kept, failed := p.Cohort.Get("layer", &places)
	if err != nil || !ok || p.Round != 4 || p.Record.Seconds != .5 || back.Round != 4 || failed != nil ||
		places[1] != (Location{2, 3, 4, "x", nil}) {
		t.Fatalf("%+v %v %v %v", p, ok, err, failed)
	}
	for i, m := range []tensor.Map{back.Shared, back.Broadcast, back.State, back.PerClient[1], back.PerClient[10],
		kept} {
		if len(m) != 1 || m["a/b"].Data[0] != float32(i+1) {
			t.Errorf("part %d is %v", i+1, m)
		}
	}
	if len(back.PerClient) != 2 {
		t.Errorf("extras for %d clients", len(back.PerClient))
	}
}

// A checkpoint is of this version and of round 1 or a later one, and its extras are for clients.
func TestRestore(t *testing.T) {
	one := tensor.New(1)
	for _, c := range []struct{ meta, name, says string }{
		{`{"version":3,"round":1}`, "each/2/x", "<nil>"},
		{`{"version":3,"round":0}`, "each/2/x", "it counts 0 rounds; it must count 1 or more"},
		{`{"version":3,"round":1}`, "each/a/x", "its tensor each/a/x belongs to no client of the run"},
		{`{"round":1}`, "each/2/x", "it has version 0, this program reads version 3; finish the run with the release " +
			"that began it, or choose another --out"},
		{``, "shared/x", "it has no position, so promptfed run did not write it"}} {
		var g method.Global
		if _, err := restore(&g, tensor.Map{c.name: one}, c.meta); fmt.Sprint(err) != c.says {
			t.Errorf("%+v: %v", c, err)
		} else if err == nil && g.PerClient[2]["x"] != one {
			t.Errorf("%+v: %v", c, g.PerClient)
		}
	}
	dir := t.TempDir()
	if _, ok, err := LoadCheckpoint(dir, &method.Global{}); ok || err != nil {
		t.Error(ok, err)
	}
	for text, says := range map[string]string{"x": "cannot resume: ", "": "cannot resume: "} {
		filetest.Write(t, filepath.Join(dir, CheckpointFile), text)
		if _, _, err := LoadCheckpoint(dir, &method.Global{}); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Error(err)
		}
	}
	goldentest.NoError(t, WriteChecksummed(filepath.Join(dir, CheckpointFile), nil, nil))
	if _, _, err := LoadCheckpoint(dir, &method.Global{}); err == nil || err.Error() != "cannot resume: "+
		filepath.Join(dir, CheckpointFile)+": it has no position, so promptfed run did not write it" {
		t.Error(err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	dir := f.TempDir()
	g := method.Global{Shared: tensor.Map{"ctx": tensor.New(1, 2)},
		PerClient: map[int]tensor.Map{2: {"x": tensor.New(1)}}}
	goldentest.NoError(f, SaveCheckpoint(dir, &g, Checkpoint{Round: 1}))
	_, meta, err := ReadChecksummed(filepath.Join(dir, CheckpointFile))
	goldentest.NoError(f, err)
	f.Add(meta["position"], "each/2/x")
	f.Add(`{"version":3,"round":-1}`, "shared/ctx")
	f.Add(`{"version":3,"round":1e9,"cohort":{"a":1}}`, "each//")
	f.Fuzz(func(t *testing.T, meta, name string) {
		var g method.Global
		p, err := restore(&g, tensor.Map{name: tensor.New(1)}, meta)
		if err == nil && (p.Round < 1 || g.Round != p.Round) {
			t.Fatalf("%+v", p)
		}
	})
}
