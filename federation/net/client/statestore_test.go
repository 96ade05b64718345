package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// Only its owner may open a folder that MakeFolder makes or finds empty. A folder of other things keeps its mode, also
// when the client starts there again.
func TestMakeFolder(t *testing.T) {
	for name, want := range map[string]os.FileMode{"": 0o700, StoreFile: 0o755, "photo.png": 0o755} {
		dir := t.TempDir()
		if name != "" {
			filetest.Write(t, filepath.Join(dir, name), "{}")
		}
		goldentest.NoError(t, errors.Join(os.Chmod(dir, 0o755), MakeFolder(dir)))
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != want && runtime.GOOS != "windows" {
			t.Errorf("with %q: %v, %v", name, st.Mode(), err)
		}
	}
	file := filetest.Write(t, filepath.Join(t.TempDir(), "file"), "")
	goldentest.WantError(t, MakeFolder(file), "use another --state")
}

// A client's folder keeps the states that may still count, and no others.
func TestStateStore(t *testing.T) {
	dir := t.TempDir()
	run := wire.NewID()
	v, err := openStateStore(dir, run, 2, []byte("key"))
	goldentest.NoError(t, err)
	if _, err := openStateStore(dir, run, 2, []byte("other")); !errors.Is(err, certs.ErrOtherKey) {
		t.Errorf("a server with another key: %v", err)
	}
	ids := []string{wire.NewID(), wire.NewID(), wire.NewID()}
	has := func(want ...string) {
		t.Helper()
		for _, id := range ids {
			s, err := v.get(id)
			if should := strings.Contains(strings.Join(want, " "), id); should != (err == nil) {
				t.Errorf("%s: %v, %v", id, s, err)
			}
		}
	}
	for round, id := range ids {
		own := tensor.Map{"a": tensor.Scalar(float32(round))}
		goldentest.NoError(t, v.put(round, id, message.ClientState{Own: own}))
	}
	if s, err := v.get(ids[1]); err != nil || s.Own["a"].Data[0] != 1 {
		t.Errorf("%v, %v", s, err)
	}
	has(ids...)
	if !HasStates(dir, run) || HasStates(dir, wire.NewID()) || HasStates(t.TempDir(), run) {
		t.Error("a folder with states of the run, of another, and without states")
	}
	order := func(round int, kind message.Kind, accepted, safe string) *wire.Instruction {
		return &wire.Instruction{Round: int64(round), Kind: string(kind), Accepted: accepted, Safe: safe,
			Id: wire.NewID()}
	}
	// tested in round 2, whose training is not decided yet
	goldentest.NoError(t, v.prune(order(2, message.Test, ids[1], ids[1])))
	has(ids[1], ids[2])
	goldentest.NoError(t, os.WriteFile(filepath.Join(dir, ".state-half.tmp"), nil, 0o600))
	// trains in round 2 once more, with another order: the server may have counted the first, and have died since
	goldentest.NoError(t, v.prune(order(2, message.Train, ids[1], ids[1])))
	has(ids[1], ids[2])
	for range 2 * maxSpare { // and on and on
		id := wire.NewID()
		goldentest.NoError(t, v.put(2, id, message.ClientState{}))
		goldentest.NoError(t, v.prune(order(2, message.Train, ids[1], ids[1])))
	}
	has(ids[1], ids[2])
	if files, _, _ := v.files(); len(files) > 1+maxSpare {
		t.Errorf("%d states are kept", len(files))
	}
	for say, lie := range map[string][2]string{"lacks uploads": {"", ""}, "has no record": {wire.NewID(), ids[1]},
		"lacks": {ids[2], ""}} {
		goldentest.WantError(t, v.checkServer(lie[0], lie[1]), say)
	}
	if err := v.checkServer(ids[2], ids[2]); err != nil {
		t.Error(err)
	}
	if err := v.prune(order(3, message.Train, ids[2], ids[2])); err != nil { // it counts, and the checkpoint has it
		t.Fatal(err)
	}
	has(ids[2])
	goldentest.NoError(t, v.put(1, ids[0], message.ClientState{}))
	goldentest.WantError(t, v.checkServer(ids[0], ids[0]), "goes back to round 2")
	if list, _ := filepath.Glob(filepath.Join(dir, ".*")); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
	if s, err := v.get(""); err != nil || s.Own != nil {
		t.Errorf("%v, %v", s, err)
	}
	for _, other := range []struct {
		run    string
		client int
	}{{wire.NewID(), 2}, {run, 1}} {
		_, err := openStateStore(dir, other.run, other.client, nil)
		goldentest.WantErrorOf(t, fmt.Sprint(other), err, "--state")
	}
	goldentest.NoError(t, v.prune(order(9, message.Train, "", "")))
	next := wire.NewID()
	if _, err := openStateStore(dir, next, 2, []byte("key")); err != nil { // nothing was learned in that run
		t.Error(err)
	}
	v.storeHeader = storeHeader{Run: next, Client: 2, Done: true}
	if FinishedRun(dir) != "" || v.write() != nil || FinishedRun(dir) != next {
		t.Error("the end is not noted")
	}
	_, err = openStateStore(dir, next, 2, []byte("key")) // a certificate proved the key before
	goldentest.NoError(t, err)
	if _, err := openStateStore(dir, wire.NewID(), 2, nil); err == nil {
		t.Error("the folder of a finished run is taken for another")
	}
}
