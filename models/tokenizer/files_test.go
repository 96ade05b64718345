package tokenizer

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
)

// TestFiles encodes strings with tokenizers of every kind. The ids are those of Hugging Face's library, version 0.22.2
// (tools/golden/tokenizer_files.py); FILES names a folder with more strings. The tokenizer of CLIP's kind has start and
// end tokens with other names, so it follows its file, without OpenAI's cleaning.
func TestFiles(t *testing.T) {
	dir := cmp.Or(os.Getenv("FILES"), "testdata/files")
	var golden struct {
		Texts []string
		IDs   map[string][][]int
	}
	goldentest.ReadJSON(t, filepath.Join(dir, "ids.json.gz"), &golden)
	for name, all := range golden.IDs {
		tok, err := Load(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		wrong := 0
		for i, text := range golden.Texts {
			got, err := tok.Whole(text, 2*maxText)
			if err != nil || !slices.Equal(got, all[i]) {
				if wrong++; wrong < 4 {
					t.Errorf("%s: %+q gives %v, %v\nwant %v", name, text, got, err, all[i])
				}
			}
		}
		if t.Logf("%s: %d of %d strings differ", name, wrong, len(all)); len(all) < 150 {
			t.Errorf("%s: only %d strings", name, len(all))
		}
	}
}
