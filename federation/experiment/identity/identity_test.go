package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// planned is a run of five rounds.
var planned = map[string]any{roundsKey: 5, everyKey: 1, "train.lr": 0.002, "method": "promptfl"}

// with returns the identity of planned with changed values.
func with(t *testing.T, seed uint64, change map[string]any) Identity {
	t.Helper()
	all, v := maps.Clone(planned), NewValues()
	maps.Copy(all, change)
	for key, value := range all {
		goldentest.NoError(t, v.PutJSON(key, value))
	}
	return Of(seed, v)
}

// A run resumes with more rounds, and with fewer than planned if no finished round is lost. Any other changed value is
// refused with its key. A folder without an identity is refused.
func TestContinue(t *testing.T) {
	dir := t.TempDir()
	wants := func(err error, words string) {
		t.Helper()
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	write := func(id Identity) {
		t.Helper()
		goldentest.NoError(t, id.Write(dir))
	}
	was := with(t, 1, nil)
	wants(was.Continue(dir, 3), File)
	write(was)
	for _, c := range []struct {
		seed   uint64
		change map[string]any
		words  string
	}{
		{1, nil, ""},
		{1, map[string]any{roundsKey: 9}, ""},
		{1, map[string]any{roundsKey: 3}, ""},
		{1, map[string]any{roundsKey: 2}, "has 3 finished rounds, but train.rounds is 2"},
		{1, map[string]any{"train.lr": 5}, "train.lr is 0.002 there, 5 now"},
		{1, map[string]any{"train.lr": 5, "options.tokens": 4}, "holds another experiment: train.lr is"},
		{1, map[string]any{"options.tokens": 4}, "options.tokens is none there, 4 now"},
		{1, map[string]any{"method": "fedpgp"}, "method is promptfl there, fedpgp now"},
		{2, nil, "holds seed 1, this is seed 2"},
	} {
		wants(with(t, c.seed, c.change).Continue(dir, 3), c.words)
	}
	// The last round of a run is tested for any eval.every. A longer run would not have tested it.
	const leave = "leave train.rounds at 5"
	write(with(t, 1, map[string]any{everyKey: 2}))
	wants(with(t, 1, map[string]any{everyKey: 2, roundsKey: 7}).Continue(dir, 5), leave)
	wants(with(t, 1, map[string]any{everyKey: 2, roundsKey: 7}).Continue(dir, 4), "")
	wants(with(t, 1, map[string]any{everyKey: 2, roundsKey: 3}).Continue(dir, 3), leave)

	many := func(value int) Identity {
		return with(t, 1, map[string]any{"a": value, "b": value, "c": value, "d": value, "e": value, "f": value,
			"g": value})
	}
	write(many(3))
	wants(many(4).Continue(dir, 3), "d is 3 there, 4 now; e is 3 there, 4 now; and 2 more")

	write(was)
	wants(was.CheckSeeds(t.TempDir()), "")
	wants(with(t, 7, map[string]any{roundsKey: 9}).CheckSeeds(dir), "train.rounds is 5 there, 9 now")
	wants(with(t, 7, nil).CheckSeeds(dir), "")

	old := was
	old.Version++
	write(old)
	wants(was.Continue(dir, 3), "version 2")
	old.Version, old.Values = was.Version, nil
	write(old)
	wants(was.Continue(dir, 3), "it has no values")
	if _, err := Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder without one: %v", err)
	}
}

// Two contents of one name are told apart by the first 8 digits of their digests, and others by their names. A digest
// has 64 digits.
func TestDifferences(t *testing.T) {
	content := func(digest, name string) Identity {
		v := NewValues()
		v.Put("data", digest, name)
		return Of(1, v)
	}
	a, b := strings.Repeat("a", 64), strings.Repeat("0", 64)
	for want, ids := range map[string][2]Identity{
		"{data pets (digest aaaaaaaa) pets (digest 00000000)}": {content(a, "pets"), content(b, "pets")},
		"{data pets cars}":         {content(a, "pets"), content(b, "cars")},
		"{data digest aaaaaaaa x}": {content(a, ""), content("x", "")},
	} {
		if got := fmt.Sprint(ids[0].Differences(ids[1])); got != "["+want+"]" {
			t.Errorf("%s, want [%s]", got, want)
		}
	}
}

// Runs are compared if they are tested on the same images: their training data and learning rates may differ.
func TestEvaluation(t *testing.T) {
	for key, compared := range map[string]bool{"train.lr": true, "data.shots": true, "eval.fine_tune": true,
		"data.root": false, "eval.every": false} {
		if got := with(t, 1, map[string]any{key: 16}).Evaluation == with(t, 2, nil).Evaluation; got != compared {
			t.Errorf("with another %s: %v, want %v", key, got, compared)
		}
	}
}

// Runs on unknown data are never the same experiment.
func TestUnknownIsNotTheSame(t *testing.T) {
	id := with(t, 1, nil)
	if !id.Same(id) {
		t.Error("an identity differs from itself")
	}
	id.Unknown = []string{"data"}
	if id.Same(id) || with(t, 1, nil).Same(id) {
		t.Error("unknown data is taken for the same data")
	}
}
