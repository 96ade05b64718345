package converted_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle/converted"
)

// rewrite changes a JSON file of a copied checkpoint.
func rewrite(t *testing.T, path string, change func(map[string]any)) {
	t.Helper()
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
	if err != nil {
		t.Fatal(err)
	}
}

// Where transformers may read a text's features at another token, the bundle says so. In the folder's own vocabulary
// the end token is the last, 529.
func TestEndTokenNotes(t *testing.T) {
	eos := func(id any) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, "config.json"), func(m map[string]any) {
				m["text_config"].(map[string]any)["eos_token_id"] = id
			})
		}
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		note   string // empty for none
	}{
		{"the default of old releases", eos(2), ""},
		{"the end token", eos(529), ""},
		{"left out", eos(nil), ""},
		{"another", eos(49407), "config.json says that texts end with token 49407, the vocabulary ends them with 529"},
		{"end token first", func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, "vocab.json"), func(m map[string]any) {
				m["!"], m["<|endoftext|>"] = m["<|endoftext|>"], m["!"]
			})
		}, "end token, 0, which is not the last of the vocabulary, 529"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, "testdata/huggingface")
			c.change(t, dir)
			notes := strings.Join(convert(t, dir, converted.Options{}).Notes, "; ")
			if strings.Contains(notes, "token") != (c.note != "") || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want one with %q", notes, c.note)
			}
		})
	}
}
