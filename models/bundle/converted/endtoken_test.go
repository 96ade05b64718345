package converted_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle/converted"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// rewrite changes a JSON file.
func rewrite(path string, change func(map[string]any)) error {
	data, err := os.ReadFile(path)
	m := map[string]any{}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil {
		change(m)
		data, err = json.Marshal(m)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	return err
}

// Texts are read at the end token of the vocabulary, 529, the last of the folder's own vocabulary. A configuration that
// reads them at another token is refused; if transformers may read at a larger token, the bundle has a note.
func TestEndToken(t *testing.T) {
	eos := func(id any) func(dir string) error {
		return func(dir string) error {
			return rewrite(filepath.Join(dir, "config.json"), func(m map[string]any) {
				m["text_config"].(map[string]any)["eos_token_id"] = id
			})
		}
	}
	swapped := func(dir string) error {
		return errors.Join(eos(2)(dir), rewrite(filepath.Join(dir, "vocab.json"), func(m map[string]any) {
			m["!"], m["<|endoftext|>"] = m["<|endoftext|>"], m["!"]
		}))
	}
	for _, c := range []struct {
		name           string
		change         func(dir string) error
		note, mistaken string // empty for none
	}{
		{"the default of old releases", eos(2), "", ""},
		{"the end token", eos(529), "", ""},
		{"left out", eos(nil), "", "reads texts at token 49407, but the vocabulary ends them with 529"},
		{"another", eos(528), "", "reads texts at token 528, but the vocabulary ends them with 529"},
		{"end token first", swapped, "end token, 0, which is not the last of the vocabulary, 529", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filetest.Copy(t, t.TempDir(), "testdata/huggingface")
			goldentest.NoError(t, c.change(dir))
			b, err := converted.Convert(dir, filepath.Join(t.TempDir(), "small"), converted.Options{})
			if c.mistaken != "" {
				goldentest.WantErrorOf(t, c.name, err, c.mistaken, "--vocab")
				return
			}
			goldentest.NoError(t, err)
			notes := strings.Join(b.Notes, "; ")
			if strings.Contains(notes, "token") != (c.note != "") || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want one with %q", notes, c.note)
			}
		})
	}
}
