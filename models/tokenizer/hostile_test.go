package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestDamagedFiles gives readers what must be refused, and what the message must say.
func TestDamagedFiles(t *testing.T) {
	const ends = `"<|startoftext|>":1,"<|endoftext|>":2`
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"empty folder", nil, "holds no vocabulary"},
		{"empty merges", map[string]string{"merges.txt": ""}, "no merges"},
		{"three fields", map[string]string{"merges.txt": "#version: 0.2\ni n\na b c\n"},
			`line 3: "a b c" is not two tokens`},
		{"cut line", map[string]string{"merges.txt": "i n\nt"}, `line 2: "t" is not two tokens`},
		{"unknown part", map[string]string{"merges.txt": "i n\nin gx\n"},
			`merge 2 ("in" and "gx"): "gx" is not a token`},
		{"same token twice", map[string]string{"merges.txt": "a b\nb c\nab c\na bc\n"},
			`merge 4: token "abc" is made a second time`},
		{"cut gzip", map[string]string{"bpe_simple_vocab_16e6.txt.gz": "\x1f\x8b\x08\x00\x00"}, "gzip"},
		{"long line", map[string]string{"merges.txt": strings.Repeat("x", 1<<17)}, "token too long"},
		{"cut json", map[string]string{"tokenizer.json": `{"model": {`}, "not the JSON of a vocabulary"},
		{"other model", map[string]string{"tokenizer.json": `{"model": {"type": "Unigram"}}`}, "not a CLIP tokenizer"},
		{"no merges file", map[string]string{"vocab.json": `{` + ends + `}`}, "merges.txt must lie beside it"},
		{"shared id", map[string]string{"vocab.json": `{"a":1,` + ends + `}`, "merges.txt": "a b\n"},
			`tokens "<|startoftext|>" and "a" share id 1`},
		{"negative id", map[string]string{"vocab.json": `{"a":-1,` + ends + `}`, "merges.txt": "a b\n"}, "outside 0.."},
		{"huge id", map[string]string{"vocab.json": `{"a":99999999,` + ends + `}`, "merges.txt": "a b\n"},
			"outside 0.."},
		{"fraction", map[string]string{"vocab.json": `{"a":1.5}`, "merges.txt": "a b\n"},
			"not the JSON of a vocabulary"},
		{"no start", map[string]string{"vocab.json": `{"a":0}`, "merges.txt": "a b\n"}, "no token <|startoftext|>"},
		{"foreign merges", map[string]string{"vocab.json": `{"a":0,"b":3,` + ends + `}`, "merges.txt": "a b\n"},
			`merge 1 makes "ab", which is not a token`},
	} {
		dir := t.TempDir()
		for name, data := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Load(dir)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := FromMerges(strings.NewReader("a b\n"), 2); err == nil || !strings.Contains(err.Error(),
		"1 merges, need 2") {
		t.Errorf("short list: %v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("missing path loaded")
	}
}

func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

func FuzzEncode(f *testing.F) {
	tok := small(f)
	for _, c := range golden(f) {
		f.Add(c.Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := tok.Encode(text)
		if err != nil {
			if utf8.ValidString(text) && len(text) <= maxText && len(Clean(text)) <= maxText {
				t.Fatal(err)
			}
			return
		}
		for _, id := range ids {
			if id < 0 || id >= tok.VocabSize() {
				t.Fatalf("id %d", id)
			}
		}
		if got, want := squeeze(tok.Decode(ids)), squeeze(Clean(text)); got != want {
			t.Fatalf("Decode(Encode(%q)) = %q, want %q", text, got, want)
		}
	})
}

func FuzzFromMerges(f *testing.F) {
	f.Add([]byte("#version: 0.2\ni n\nt h\nin g</w>\n"), 2)
	f.Add([]byte("a a\naa aa\naaa a\n"), 0)
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"), 1)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		tok, err := FromMerges(strings.NewReader(string(data)), limit)
		if err != nil {
			return
		}
		reload(t, tok)
	})
}

func FuzzReadHF(f *testing.F) {
	f.Add([]byte(`{"added_tokens":[{"id":9,"content":"<|startoftext|>"}],"model":{"type":"BPE",
		"end_of_word_suffix":"</w>","vocab":{"l":0,"o":1,"lo":3,"<|endoftext|>":7},"merges":["l o"]}}`))
	f.Add([]byte(`{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":null,"merges":[["a","b"]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := readHF(strings.NewReader(string(data))); err == nil {
			reload(t, tok)
		}
	})
}

// reload checks that what was accepted can be stored, read back and used.
func reload(t *testing.T, tok *Tokenizer) {
	t.Helper()
	dir := t.TempDir()
	if err := tok.WriteHF(dir); err != nil {
		t.Fatal(err)
	}
	back, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	same(t, tok, back)
	if ids, err := tok.Encode("aaa ing low aaaab"); err == nil {
		tok.Decode(ids)
	}
}
