package transport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/runtime/tensor"
)

// A client's folder keeps the states that may still count, and no others.
func TestVault(t *testing.T) {
	dir := t.TempDir()
	run := NewID()
	v, err := openVault(dir, run, 2, []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{NewID(), NewID(), NewID()}
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
		if err := v.put(round, id, engine.State{Own: tensor.Map{"a": tensor.Scalar(float32(round))}}); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := v.get(ids[1]); err != nil || s.Own["a"].Data[0] != 1 {
		t.Errorf("%v, %v", s, err)
	}
	has(ids...)
	if err := v.keep(2, false, ids[1], ids[1]); err != nil { // tested in round 2, whose training is not decided yet
		t.Fatal(err)
	}
	has(ids[1], ids[2])
	if err := os.WriteFile(filepath.Join(dir, ".state-half.tmp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.keep(2, true, ids[1], ids[1], NewID()); err != nil { // trains in round 2 once more, with another order
		t.Fatal(err)
	}
	has(ids[1])
	if list, _ := filepath.Glob(filepath.Join(dir, ".*")); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
	if s, err := v.get(""); err != nil || s.Own != nil {
		t.Errorf("%v, %v", s, err)
	}
	for _, other := range []struct {
		run    string
		client int
	}{{NewID(), 2}, {run, 1}} {
		if _, err := openVault(dir, other.run, other.client, nil); err == nil || !strings.Contains(err.Error(),
			"--state") {
			t.Errorf("%v: %v", other, err)
		}
	}
	if err := v.keep(9, true); err != nil {
		t.Fatal(err)
	}
	next := NewID()
	if _, err := openVault(dir, next, 2, []byte("key")); err != nil { // nothing was learned in that run
		t.Error(err)
	}
	v.owner = owner{Run: next, Client: 2, Done: true}
	if Finished(dir) != "" || v.write() != nil || Finished(dir) != next {
		t.Error("the end is not noted")
	}
	if _, err := openVault(dir, NewID(), 2, nil); err == nil {
		t.Error("the folder of a finished run is taken for another")
	}
}
