package tokenizer

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/runtime/filetest"
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

// The options of tokenizer_config.json have the meaning that they have in transformers 5.23, whose ids these are; those
// of added tokens beside CLIP's vocabulary are of tokenizers 0.23.3. The stored file gives the same ids.
func TestOptions(t *testing.T) {
	siglip := string(filetest.Read(t, "../bundle/converted/testdata/siglip/spiece.model"))
	const bert = "[PAD]\n[UNK]\n[CLS]\n[SEP]\ne\né\n犬\n犬犬\n"
	const clip = `{"added_tokens":[{"id":6,"content":"<|startoftext|>"},{"id":7,"content":"<|endoftext|>"},
		{"id":5,"content":"!</w>","special":true},{"id":8,"content":"Cat-Toy","normalized":true},
		{"id":9,"content":"<X>","special":true},{"id":10,"content":"dog","single_word":true}],
		"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{"l":0,"o":1,"w</w>":2,"lo":3,"low</w>":4,"!</w>":5},
		"merges":["l o","lo w</w>"]}}`
	for _, c := range []struct {
		name, file, config, text string
		want                     []int
	}{
		{bertName, bert, `{"strip_accents":false}`, "é 犬犬", []int{2, 5, 6, 6, 3}},
		{bertName, bert, `{"tokenize_chinese_chars":false}`, "é 犬犬", []int{2, 4, 7, 3}},
		{"spiece.model", siglip, `{"tokenizer_class":"SiglipTokenizer","do_lower_case":false}`, "a Dog.",
			[]int{46, 3, 2, 31, 58, 1}},
		{jsonName, clip, `{}`, "LOW cat-toylow <X>low", []int{6, 4, 8, 4, 9, 4, 7}},
		{jsonName, clip, `{}`, "low<X>Low CAT-TOY! dog", []int{6, 4, 9, 4, 8, 5, 10, 7}},
	} {
		dir := t.TempDir()
		filetest.Write(t, filepath.Join(dir, c.name), c.file)
		filetest.Write(t, filepath.Join(dir, ConfigName), c.config)
		tok, err := Load(dir)
		goldentest.NoError(t, err)
		stored := t.TempDir()
		goldentest.NoError(t, tok.WriteHF(stored))
		for _, tok := range []*Tokenizer{tok, load(t, stored)} {
			if got, err := tok.Whole(c.text, 9); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, %v, want %v", c.config, got, err, c.want)
			}
		}
	}
}
