package engine

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// All of the server's state comes back, also what is sent to a client that has never trained.
func TestCheckpointHoldsAll(t *testing.T) {
	dir := t.TempDir()
	one := func(v float32) tensor.Map { return tensor.Map{"a/b": tensor.Of([]float32{v}, 1)} }
	g := method.Global{Round: 4, Shared: one(1), Broadcast: one(2), State: one(3),
		PerClient: map[int]tensor.Map{1: one(4), 10: one(5)}}
	if err := saveCheckpoint(dir, &g, position{Round: 4, Clients: map[int]place{1: {2, 3, 4, "x"}},
		Record: Record{Round: 3, Loss: .5}}); err != nil {
		t.Fatal(err)
	}
	var back method.Global
	p, ok, err := loadCheckpoint(dir, &back)
	if err != nil || !ok || p.Round != 4 || p.Clients[1] != (place{2, 3, 4, "x"}) || p.Record.Loss != .5 ||
		back.Round != 4 {
		t.Fatalf("%+v %v %v", p, ok, err)
	}
	for i, m := range []tensor.Map{back.Shared, back.Broadcast, back.State, back.PerClient[1], back.PerClient[10]} {
		if len(m) != 1 || m["a/b"].Data[0] != float32(i+1) {
			t.Errorf("part %d is %v", i+1, m)
		}
	}
	if len(back.PerClient) != 2 {
		t.Errorf("extras for %d clients", len(back.PerClient))
	}
}

func FuzzJournal(f *testing.F) {
	line := `{"round":0,"loss":1,"tested":false,"clients":[0],"lr":1,"bytes_up":1,"bytes_down":1,"seconds":1}` + "\n"
	f.Add([]byte(line+strings.Replace(line, `"round":0`, `"round":1`, 1)), 2)
	f.Add([]byte(line[:40]), 0)
	f.Add([]byte("\n\n{}\nnull\n[1]\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, done int) {
		done = max(0, done%5)
		last := Record{Round: done - 1}
		records, text, err := parseJournal(b, done, last)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		again, same, err := parseJournal(text, done, last)
		if err != nil || len(records) != done || len(again) != done || !bytes.Equal(text, same) {
			t.Fatalf("%d records, read again %d: %v", len(records), len(again), err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	dir := f.TempDir()
	g := method.Global{Shared: tensor.Map{"ctx": tensor.New(1, 2)},
		PerClient: map[int]tensor.Map{2: {"x": tensor.New(1)}}}
	if err := saveCheckpoint(dir, &g, position{Round: 1}); err != nil {
		f.Fatal(err)
	}
	_, meta, err := readSealed(filepath.Join(dir, checkpointFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(meta["position"], "each/2/x")
	f.Add(`{"round":-1}`, "shared/ctx")
	f.Add(`{"round":1e9,"clients":{"a":1}}`, "each//")
	f.Fuzz(func(t *testing.T, meta, name string) {
		var g method.Global
		p, err := restore(&g, tensor.Map{name: tensor.New(1)}, meta)
		if err == nil && (p.Round < 1 || g.Round != p.Round) {
			t.Fatalf("%+v", p)
		}
	})
}
