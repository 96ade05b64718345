package state

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

func ownState(v float32) message.ClientState {
	return message.ClientState{Private: tensor.Map{"a": tensor.Scalar(v)}, Own: tensor.Map{}, Method: tensor.Map{}}
}

func mustGet(t *testing.T, s *Store, client int) float32 {
	t.Helper()
	st, err := s.Get(client)
	goldentest.NoError(t, err)
	if st.Private["a"] == nil {
		return 0
	}
	return st.Private["a"].Data[0]
}

// A state counts once its round accepts it, in memory and on disk. A state of a round that did not end, or of a client
// that the round does not accept, is gone. Files without a client's state are removed. Without a folder there are none.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	for _, s := range []*Store{NewStore(""), NewStore(dir)} {
		stage := func(round, client int, v float32) {
			t.Helper()
			goldentest.NoError(t, s.Stage(round, client, ownState(v)))
		}
		accept := func(round int, clients ...int) {
			t.Helper()
			goldentest.NoError(t, s.Accept(round, clients))
		}
		stage(0, 1, 1)
		stage(0, 2, 2)
		stage(0, 3, 3)
		if mustGet(t, s, 1) != 0 || s.Clients() != nil {
			t.Error("a state counts before its round does")
		}
		accept(0, 3, 1)
		if mustGet(t, s, 1) != 1 || mustGet(t, s, 2) != 0 || mustGet(t, s, 3) != 3 ||
			!slices.Equal(s.Clients(), []int{1, 3}) {
			t.Errorf("clients %v", s.Clients())
		}
		accept(0, 2) // its state is dropped
		stage(1, 2, 4)
		stage(2, 1, 5) // round 1 did not end
		accept(2, 1, 2)
		if mustGet(t, s, 1) != 5 || mustGet(t, s, 2) != 0 || mustGet(t, s, 3) != 3 {
			t.Errorf("clients %v", s.Clients())
		}
		s.GC()
		if s.file != nil {
			t.Error("the file of a committed round is open")
		}
	}
	if written, _ := filepath.Glob("*"); len(written) > 0 {
		t.Errorf("a store in memory writes %v", written)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 2 || filepath.Base(files[0]) != "clients-000000.states" ||
		filepath.Base(files[1]) != "clients-000002.states" {
		t.Errorf("left are %v", files)
	}
	if st, err := os.Stat(files[0]); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

// A store reads what a checkpoint says of its files, and refuses files with other bytes.
func TestStoreResumes(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir)
	for client, v := range []float32{7, 8} {
		goldentest.NoError(t, s.Stage(3, client, ownState(v)))
	}
	goldentest.NoError(t, s.Accept(3, []int{0, 1}))
	places, back := s.Locations(), NewStore(dir)
	if p := places[1]; p.Round != 3 || p.At != places[0].Size || p.Size != p.At || len(p.Sum) != 64 {
		t.Errorf("%+v", places)
	}
	if err := back.Load(places); err != nil || mustGet(t, back, 1) != 8 ||
		!reflect.DeepEqual(back.Locations(), places) {
		t.Error(err)
	}
	if err := back.Load(nil); err != nil || len(back.Clients()) != 0 || back.Stage(4, 0, ownState(1)) != nil ||
		back.Accept(4, []int{0}) != nil {
		t.Errorf("without states: %v", err)
	}
	filetest.Write(t, filepath.Join(dir, "clients-000008.states", "x"), "")
	const damaged = "clients-000003.states is damaged: a client's state does not match its checksum; restore a copy"
	for says, change := range map[string]func(p *Location){
		filepath.Join(dir, "clients-000003.states") + " is damaged": func(p *Location) { p.Sum = places[0].Sum },
		damaged:                             func(p *Location) { p.At = -1 },
		"is damaged: a client's state does": func(p *Location) { p.Size = -1 },
		"is damaged: a client's":            func(p *Location) { p.At++ },
		"is damaged: a":                     func(p *Location) { p.At, p.Size = 1<<40, 0 },
		"clients-000009.states: no such":    func(p *Location) { p.Round = 9 },
		"clients-000008.states: read ":      func(p *Location) { *p = Location{Round: 8, Size: 1} }, // a folder
	} {
		p := places[1]
		change(&p)
		if err := NewStore(dir).Load(map[int]Location{1: p}); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "cannot resume") { // which engine.Run says once
			t.Errorf("%+v: %v, want %q", p, err, says)
		}
	}
	empty := sha256.Sum256(nil) // no bytes at the end of a file are in it
	goldentest.NoError(t, NewStore(dir).Load(map[int]Location{1: {3, places[1].At + places[1].Size, 0,
		hex.EncodeToString(empty[:]), nil}}))
	bad := NewStore(filepath.Join(dir, "missing"))
	goldentest.WantError(t, bad.Stage(0, 0, ownState(1)), "checkpoint of round 1: cannot write "+bad.path(0)+
		" (the previous checkpoint is intact): ")
}

// A client's file is read as it was written, and refused with one bit changed.
func TestStateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := message.ClientState{Private: tensor.Map{"a": tensor.Scalar(1)}, Own: tensor.Map{"b": tensor.Scalar(2)},
		Method: tensor.Map{"c/d": tensor.OfInts([]int64{3}, 1)}}
	goldentest.NoError(t, WriteState(path, s))
	if back, err := ReadState(path); err != nil || !reflect.DeepEqual(back, s) {
		t.Fatal(err, back)
	}
	b := filetest.Read(t, path)
	for _, at := range []int{len(b) - 1, len(b) - 9} { // of the float32 numbers and of the int64 ones
		b[at] ^= 1
		filetest.Write(t, path, b)
		if _, err := ReadState(path); err == nil || !strings.HasPrefix(err.Error(),
			path+" is damaged: its content does not match its checksum") {
			t.Error(err)
		}
		b[at] ^= 1
	}
}
