package state_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// readsBroadcast is a method whose class scores read one of the server's extras.
type readsBroadcast struct{ method.Method }

func (m readsBroadcast) Logits(s *method.Scope) graph.Node {
	return m.Method.Logits(s).Mul(s.Broadcast("scale", 1))
}

// A run's file has the server's tensors and those of each client. A client reads its own ones from the run's file and
// from the file that it wrote itself.
func TestPromptsFile(t *testing.T) {
	m := enginetest.Build(t, "promptfl", nil, nil)
	value := func(v float32) tensor.Map { return tensor.Map{"x": tensor.Scalar(v)} }
	e := &spec.Experiment{Method: readsBroadcast{m}, Classes: methodtest.Classes, Template: "a {}.",
		Clients: methodtest.Clients(3, 2), Digests: map[string]string{"toy-b": "abc"}}
	participants := make([]message.Participant, 2)
	for i, c := range e.Clients {
		task := e.Task(c)
		participants[i] = message.Participant{Joined: true, Task: task, Digest: e.Digests[task.Backbone]}
	}
	g := &method.Global{Shared: value(1), Broadcast: tensor.Map{"scale": tensor.Scalar(2), "other": tensor.Scalar(0)},
		PerClient: map[int]tensor.Map{1: {"scale": tensor.Scalar(3)}, 0: value(0)}}
	store := state.NewStore("")
	s := message.ClientState{Private: value(4), Own: tensor.Map{"n": tensor.OfInts([]int64{1 << 40}, 1)},
		Method: value(6)}
	goldentest.NoError(t, errors.Join(store.Stage(0, 1, s), store.Accept(0, []int{1})))
	meta, err := state.Metadata(e, participants, e.Clients)
	goldentest.NoError(t, err)
	if want := map[string]string{state.MetaClasses: `["ant","bee","cat","dog"]`,
		state.MetaBackbones: `["toy-a","toy-b"]`,
		state.MetaDigests:   `["","abc"]`, state.MetaOwned: `[[0,1,2],[1,2]]`}; !reflect.DeepEqual(meta, want) {
		t.Errorf("%v, want %v", meta, want)
	}
	dir := t.TempDir()
	parts := state.Sections(e, g, store, participants)
	goldentest.NoError(t, state.WriteSections(filepath.Join(dir, record.PromptsFile), parts, meta))
	f, err := safetensors.Open(filepath.Join(dir, record.PromptsFile))
	goldentest.NoError(t, err)
	ints, err1 := f.Info("client/1/own/n")
	floats, err2 := f.Info("client/1/private/x")
	if err := errors.Join(err1, err2, f.Close()); err != nil || ints.Offset%8 != 0 || ints.Offset > floats.Offset {
		t.Errorf("int64 at %d and float32 at %d, %v", ints.Offset, floats.Offset, err)
	}
	all, err := state.LoadSections(parts)
	goldentest.NoError(t, err)
	server := []string{"shared/x"}
	client := []string{"client/1/own/n", "client/1/private/x", "down/1/scale", "shared/x"}
	if got := all.Names(); !slices.Equal(got, []string{"client/1/own/n", "client/1/private/x", "down/0/scale",
		"down/1/scale", "shared/x"}) {
		t.Error(got)
	}
	for _, c := range []struct {
		clients []int
		want    []string
	}{{nil, server}, {[]int{1}, client}, {[]int{0}, []string{"down/0/scale", "shared/x"}}} {
		got, back, err := state.ReadPrompts(dir, c.clients...)
		if err != nil || !slices.Equal(got.Names(), c.want) || back[state.MetaDigests] != meta[state.MetaDigests] {
			t.Errorf("clients %v: %v, %v, %v", c.clients, got.Names(), back, err)
		}
		for name, v := range got {
			if !reflect.DeepEqual(v, all[name]) {
				t.Errorf("%s is %v, was %v", name, v, all[name])
			}
		}
	}
	damaged := filetest.Read(t, filepath.Join(dir, record.PromptsFile))
	damaged[ints.Offset] ^= 1
	filetest.Write(t, filepath.Join(dir, record.PromptsFile), damaged)
	_, _, mine := state.ReadPrompts(dir, 1)
	goldentest.WantError(t, mine, record.PromptsFile, "client/1/own/n", "damaged")
	_, _, others := state.ReadPrompts(dir, 0)
	old := safetensors.WriteFile(filepath.Join(dir, record.PromptsFile), all, meta)
	_, _, unchecked := state.ReadPrompts(dir, 1)
	goldentest.NoError(t, errors.Join(others, old, unchecked))
	if v := all["down/1/scale"].Data[0]; v != 3 || all["down/0/scale"].Data[0] != 2 {
		t.Errorf("client 1 reads %v", v)
	}
	shared, own := state.ClientParams(all, 1)
	if !reflect.DeepEqual(shared, value(1)) || !reflect.DeepEqual(own,
		message.ClientState{Private: value(4), Own: s.Own}) {
		t.Errorf("%v, %+v", shared, own)
	}
	participants[0].Joined = false
	if got := state.ClientBroadcasts(e, g, participants).Names(); !slices.Equal(got, []string{"1/scale"}) {
		t.Errorf("of a client that never joined: %v", got)
	}

	o := message.Instruction{Total: 2, Shared: value(1), Broadcast: g.Broadcast,
		PerClient: map[int]tensor.Map{1: g.PerClient[1]}}
	file := t.TempDir()
	goldentest.NoError(t, state.WriteClientParams(e, filepath.Join(file, record.PromptsFile), e.Clients[1], o, s))
	got, back, err := state.ReadPrompts(file, 0, 1)
	if err != nil || !slices.Equal(got.Names(), client) || got["down/1/scale"].Data[0] != 3 ||
		back[state.MetaBackbones] != `["","toy-b"]` ||
		back[state.MetaDigests] != `["","abc"]` || back[state.MetaOwned] != `[null,[1,2]]` {
		t.Errorf("%v, %v, %v", got.Names(), back, err)
	}
	for _, id := range []int{-1, 2} {
		c := *e.Clients[0]
		c.ID = id
		if err := state.WriteClientParams(e, filepath.Join(file, "x"), &c, o, s); err == nil ||
			!strings.HasSuffix(err.Error(), "does not exist; there are 2 clients") {
			t.Errorf("client %d: %v", id, err)
		}
	}
	failed := errors.New("failed")
	bad := append(slices.Clone(parts), func() (tensor.Map, error) { return nil, failed })
	if _, err := state.LoadSections(bad); err != failed {
		t.Error(err)
	}
	if err := state.WriteSections(filepath.Join(file, "y"), bad, nil); err != failed {
		t.Error(err)
	}
}

// readsMemory is a method whose class scores read the client's own examples.
type readsMemory struct{ method.Method }

func (m readsMemory) Logits(s *method.Scope) graph.Node {
	image := s.Input(method.MemoryImage, graph.Float, graph.Rows("N", s.Task().Dim))
	return m.Method.Logits(s).Add(image.Mean(0).Sum())
}

// Examples that class scores read are in the file, once for the client that has them.
func TestMemoryInPromptsFile(t *testing.T) {
	m := enginetest.Build(t, "promptfl", nil, nil)
	e := &spec.Experiment{Method: readsMemory{m}, Classes: methodtest.Classes, Template: "a {}.",
		Clients: methodtest.Clients(3, 2)}
	all, err := state.LoadSections(state.Sections(e, &method.Global{}, state.NewStore(""), nil))
	if err != nil || !slices.Equal(all.Names(), []string{"memory/0/image", "memory/0/label", "memory/1/image",
		"memory/1/label"}) {
		t.Fatal(all.Names(), err)
	}
	if d := state.ClientMemory(all, 1); d == nil || !slices.Equal(d.Labels(), e.Clients[1].Train.Labels()) {
		t.Errorf("%v", d)
	}
	if d := state.ClientMemory(all, 2); d != nil {
		t.Error(d)
	}
	delete(all, "memory/0/label")
	delete(all, "memory/1/image")
	if state.ClientMemory(all, 0) != nil || state.ClientMemory(all, 1) != nil {
		t.Error("half of a memory is one")
	}
}
