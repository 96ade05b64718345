package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/tokenizer"
)

// inspect tells in one line what is done to texts, where anything is that is not the tokenizer's own.
func TestInspectShowsTexts(t *testing.T) {
	x := tokenizer.Treatment{Clean: tokenizer.Canonicalize, StripSep: true, Sep: "[SEP]"}
	for want, r := range map[string][]bundle.Report{
		"cleaned: canonicalize, token 0 for the separator [SEP]": {{Bundle: &bundle.Bundle{Texts: x}},
			{Arch: &checkpoint.Arch{Texts: checkpoint.Texts{Treatment: x}}}},
		"": {{Bundle: &bundle.Bundle{}}, {Arch: &checkpoint.Arch{}}},
	} {
		for _, r := range r {
			rows := inspectRows(r, false)
			i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "texts" })
			if (i >= 0) != (want != "") || i >= 0 && rows[i][1] != want {
				t.Errorf("%v, want %q", rows, want)
			}
		}
	}
}

// inspect shows a checkpoint that cannot be converted, says why, and fails.
func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "clip")
	if err := os.CopyFS(dir, os.DirFS("../../../models/bundle/converted/testdata/huggingface")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	text := strings.Replace(string(read(t, path)), `"hidden_act"`, `"rope_theta":100,"hidden_act"`, 1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errText, code := call("inspect", dir)
	if code == 0 || !strings.Contains(out, "text_config.rope_theta = 100 is unknown") ||
		!strings.Contains(errText, dir+" cannot be converted") {
		t.Errorf("exit %d: %s%s", code, out, errText)
	}
}
