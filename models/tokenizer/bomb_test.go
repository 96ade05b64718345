package tokenizer

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func packed(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	goldentest.NoError(t, z.Close())
	return b.Bytes()
}

// forms holds the same small vocabulary in every format that Load reads, by file name.
func forms(t testing.TB) []map[string][]byte {
	t.Helper()
	list := []byte("#version: 0.2\ni n\nt h\nin g</w>\n")
	tok, err := FromMerges(bytes.NewReader(list), 3)
	goldentest.NoError(t, err)
	var whole bytes.Buffer
	goldentest.NoError(t, tok.Write(&whole))
	vocab := goldentest.JSON(t, tok.ids)
	return []map[string][]byte{{jsonName: whole.Bytes()}, {vocabName: vocab, mergesName: list}, {mergesName: list},
		{"list.txt.gz": packed(t, list)}}
}

// Every format of a vocabulary, with one of its files truncated at any byte, gives an error of one line that names the
// file or, if a list of merges ends at a line break, the shorter list.
func TestCutAnywhere(t *testing.T) {
	for _, form := range forms(t) {
		for cut, data := range form {
			dir := t.TempDir()
			for name, data := range form {
				filetest.Write(t, filepath.Join(dir, name), data)
			}
			path := filepath.Join(dir, cut)
			from := path
			if len(form) > 1 {
				from = dir
			}
			if _, err := Load(from); err != nil {
				t.Fatal(err)
			}
			opened := 0
			for n := len(bytes.TrimSpace(data)) - 1; n >= 0; n-- {
				goldentest.NoError(t, os.Truncate(path, int64(n)))
				_, err := Load(from)
				switch {
				case err == nil:
					opened++
				case !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n"):
					t.Fatalf("%s cut to %d bytes: %v", cut, n, err)
				}
			}
			if most := map[bool]int{true: 9}[cut == mergesName]; opened > most {
				t.Errorf("%s: %d cut versions load, at most %d can", cut, opened, most)
			}
		}
	}
}

// One format under the name of another, and other files under their names.
func TestMislabelled(t *testing.T) {
	f := forms(t)
	zip := []byte("PK\x03\x04\x14\x00\x00\x00\x08\x00")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{jsonName, f[1][vocabName], "must be BPE, WordPiece, WordLevel or Unigram"},
		{jsonName, f[2][mergesName], "not the JSON of a vocabulary"},
		{jsonName, f[3]["list.txt.gz"], "not the JSON of a vocabulary"},
		{jsonName, zip, "not the JSON of a vocabulary"},
		{jsonName, []byte("null"), "must be BPE, WordPiece, WordLevel or Unigram"},
		{mergesName, f[0][jsonName], `line 1: "{" is not two tokens`},
		{mergesName, zip, "is not two tokens"},
		{openAIName, f[2][mergesName], "3 merges, OpenAI's list has 48894 and more: it is cut short"},
		{openAIName + ".gz", f[3]["list.txt.gz"], "it is cut short"},
		{openAIName + ".gz", zip, "is not two tokens"},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		filetest.Write(t, path, c.data)
		_, err := Load(path)
		goldentest.WantErrorOf(t, fmt.Sprintf("%s with %.20q", c.name, c.data), err, c.want, path)
	}
}

// Files that decompress to, or claim, more than their size: maxFile limits memory, whatever the file holds.
func TestBombs(t *testing.T) {
	var tokens strings.Builder
	tokens.WriteString(`{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{`)
	for i := range 1 << 18 {
		fmt.Fprintf(&tokens, `"%x":%d,`, i, i)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
		most uint64
	}{
		{"a.txt.gz", packed(t, bytes.Repeat([]byte("\n"), 2*maxFile)), "more than 16777216 bytes", 1 << 20},
		{"c.txt", bytes.Repeat([]byte("x"), 1<<20), "token too long", 1 << 20},
		{"d.json", []byte(strings.Repeat("[", 1<<20)), "not the JSON of a vocabulary", 16 << 20},
		{"e.json", []byte(`{"added_tokens":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`),
			"not the JSON of a vocabulary", 16 << 20},
		{"f.json", make([]byte, maxJSON+1), "more than 67108864 bytes", 6 * maxJSON},
		{"g.json", []byte(tokens.String()), "not the JSON of a vocabulary", 6 * maxFile},
		{"h.json", []byte(`{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{"a":1,"b":2,"a":3}}}`),
			`token "a" is listed twice`, 1 << 20},
		{"i.json", []byte(`{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{"a":{}}}}`), `token "a"`,
			1 << 20},
		{"j.json", []byte(`{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":[1]}}`), "not an object",
			1 << 20},
		{"k.json", []byte(`{"model":{"type":"Unigram","unk_id":0,"vocab":[` + strings.Repeat(`["a",0],`, 1<<18) +
			`["a",0]]}}`), "puts 0 tokens before a text and 0 after it", 1 << 28},
		{"l.json", []byte(`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}},"pre_tokenizer":{"type":` +
			`"CharDelimiterSplit","delimiter":"` + strings.Repeat("x", 1<<20) + `"}}`),
			"puts 0 tokens before a text and 0 after it", 32 << 20},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		filetest.Write(t, path, c.data)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Load(path)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") ||
			len(err.Error()) > 1000 {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > c.most {
			t.Errorf("%s: %d bytes allocated, more than %d", c.name, used, c.most)
		}
	}
}

// FuzzReadVocab reads any bytes as the older pair of files.
func FuzzReadVocab(f *testing.F) {
	for _, form := range forms(f) {
		f.Add(form[vocabName], form[mergesName])
	}
	f.Add([]byte(`{"<|startoftext|>":0,"<|endoftext|>":1,"a":2,"b":3,"ab":4}`), []byte("a b\n"))
	f.Add([]byte(`{"a":0,"a":1}`), []byte("a a\n"))
	f.Fuzz(func(t *testing.T, vocab, merges []byte) {
		if tok, err := readVocab(bytes.NewReader(vocab), bytes.NewReader(merges)); err == nil {
			reload(t, tok)
		} else if strings.Contains(err.Error(), "\n") {
			t.Fatalf("not one line: %q", err)
		}
	})
}
