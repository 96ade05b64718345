package program

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/runtime/goldentest"
)

// fieldSweeps are the files of configs/field, without the file with the points of their axis of methods.
func fieldSweeps(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../configs/field/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files in configs/field", err)
	}
	return slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "methods.yaml" })
}

// noField are methods and wrappers that the protocols of configs/field do not compare, with the reason.
var noField = map[string]string{
	"gptfl":    "needs images of the server's own",
	"dp":       "privacy is another comparison",
	"robust":   "a defence, compared under attacks",
	"gce":      "a loss against wrong labels, compared under label noise",
	"nlprompt": "against wrong labels, compared under label noise",
	"compress": "smaller uploads, compared by bytes",
	"onnx":     "its example is PromptFL",
}

// Every protocol is a sweep in both forms, with every method. Its small form needs no data, and only backbones in the
// program.
func TestFieldSweeps(t *testing.T) {
	for _, path := range fieldSweeps(t) {
		plain, small := bothForms(t, path)
		if want := "field-" + strings.TrimSuffix(filepath.Base(path), ".yaml"); plain.Name != want {
			t.Errorf("%s is named %s, want %s", path, plain.Name, want)
		}
		if plain.Card == nil || plain.Card.Item == "" || plain.Card.Title == "" || plain.Card.NoNumbers == "" {
			t.Errorf("%s: a card with item, title and no_numbers is expected", path)
		}
		if len(small.Cells) > 12 {
			t.Errorf("%s: the small form has %d cells; seconds are enough for 12", path, len(small.Cells))
		}
		for _, cell := range small.Cells {
			if c := cell.Config; c.Data.Set != "synthetic" || len(c.Backbones) != 1 ||
				!strings.HasPrefix(c.Backbones[0], "tiny-") || len(c.Eval.Sets) > 0 && c.Eval.Sets[0] != "synthetic" {
				t.Errorf("%s: cell %s reads set %s on %v", path, cell.Folder, c.Data.Set, c.Backbones)
			}
		}
	}
	used := map[string]bool{}
	s, _ := bothForms(t, "../../../configs/field/few-shot.yaml")
	for _, cell := range s.Cells {
		for _, m := range append(slices.Clone(cell.Config.With), cell.Config.Method) {
			used[m] = true
		}
	}
	for _, e := range methods.Table() {
		if used[e.Name] == (noField[e.Name] != "") {
			t.Errorf("%s: a line of configs/field/methods.yaml compares it %v, and noField has %q: take one of the two",
				e.Name, used[e.Name], noField[e.Name])
		}
	}
}

// The small form of every protocol runs, and its main table shows the quantity of the protocol.
func TestSmokeOfField(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("trains")
	}
	for name, heads := range map[string][]string{
		"base-to-new": {"last (%)", "own-classes (%)", "set:base (%)", "set:new (%)", "hm (%)",
			"hm3 (%)"},
		"few-shot":                  {"shots = 1", "shots = 4"},
		"cross-data-set":            {"synthetic", "Average"},
		"leave-one-domain-out-pacs": {`art\_painting`, "cartoon", "Average"},
		"many-clients":              {"cifar10"},
		"unseen-clients":            {"last (%)", "new:0 (%)"},
		"asynchronous": {"last (%)", "simulated (s)", "rounds-to:70 (count)", "simulated-to:70 (s)",
			"bytes-to:70 (bytes)"},
	} {
		out := smoke(t, "../../../configs/field/"+name+".yaml")
		goldentest.Contains(t, string(read(t, out, "tables.md")), " | "+strings.Join(heads, " | ")+" |")
	}
}
