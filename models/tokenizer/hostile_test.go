package tokenizer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// TestDamagedFiles reads files that must be refused, and checks the messages.
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
		{"no model", map[string]string{"tokenizer.json": `{"model": {"type": "Unigram"}}`}, "JSON of a vocabulary"},
		{"no merges file", map[string]string{"vocab.json": `{` + ends + `}`}, "merges.txt must lie beside it"},
		{"shared id", map[string]string{"vocab.json": `{"a":1,` + ends + `}`, "merges.txt": "a b\n"},
			`tokens "<|startoftext|>" and "a" share id 1`},
		{"negative id", map[string]string{"vocab.json": `{"a":-1,` + ends + `}`, "merges.txt": "a b\n"}, "outside 0.."},
		{"huge id", map[string]string{"vocab.json": `{"a":99999999,` + ends + `}`, "merges.txt": "a b\n"},
			"outside 0.."},
		{"fraction", map[string]string{"vocab.json": `{"a":1.5}`, "merges.txt": "a b\n"},
			"not the JSON of a vocabulary"},
		{"no start", map[string]string{"vocab.json": `{"a":0}`, "merges.txt": "a b\n"}, "no token <|startoftext|>"},
		{"no [SEP]", map[string]string{"vocab.txt": "[CLS]\n[UNK]\na\n"}, "no token [SEP]"},
		{"cut settings", map[string]string{"vocab.txt": "[CLS]\n[SEP]\n[UNK]\n", ConfigName: `{"do_lower_`},
			"vocab.txt: tokenizer_config.json beside it: not the JSON"},
		{"a setting of another type", map[string]string{"vocab.txt": "", ConfigName: `{"do_lower_case": "false"}`},
			"vocab.txt: tokenizer_config.json beside it: not the JSON"},
		{"an XLM-RoBERTa's pieces", map[string]string{xlmName: "\x0a\x06\x0a\x04</s>"}, "tokenizer.json"},
		{"foreign merges", map[string]string{"vocab.json": `{"a":0,"b":3,` + ends + `}`, "merges.txt": "a b\n"},
			`merge 1 makes "ab", which is not a token`},
	} {
		dir := t.TempDir()
		for name, data := range c.files {
			filetest.Write(t, filepath.Join(dir, name), data)
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

// post ends texts with token 0 of the model that precedes it.
const post = `"post_processor":{"type":"BertProcessing","sep":["e",0],"cls":["s",1]}`

// hostileFiles are tokenizer.json files of other tokenizers than CLIP's, with the expected error, or "" if they are
// valid.
var hostileFiles = []struct{ data, want string }{
	{`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}},` + post + `}`, ""},
	{`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}},` + post + `}`, "no token has id 1"},
	{`{"model":{"type":"WordPiece","unk_token":"u","vocab":{"a":0}}}`, `unknown token "u"`},
	{`{"model":{"type":"WordPiece","unk_token":"a","max_input_chars_per_word":99999999,"vocab":{"a":0}}}`,
		"max_input_chars_per_word"},
	{`{"model":{"type":"BPE","dropout":0.5,"vocab":{"a":0}}}`, "random results"},
	{`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b","ab c"]}}`, `"c" is not a token`},
	// A merge that returns one of its own sides can be joined repeatedly, but each time the text gets shorter.
	{`{"model":{"type":"BPE","continuing_subword_prefix":"b","vocab":{"a":0,"b":1,"ba":2},"merges":["a b","a ba"]},` +
		post + `}`, `merge 2 makes "aa", which is not a token`},
	{`{"model":{"type":"BPE","continuing_subword_prefix":"b","vocab":{"a":0,"b":1,"ba":2},"merges":["a b"]},` +
		post + `}`, ""},
	{`{"model":{"type":"BPE","vocab":{"a":-5}}}`, "outside 0.."},
	{`{"model":{"type":"BPE","vocab":{"a":0,"b":1}},"added_tokens":[{"id":99999999,"content":"x"}],` + post + `}`,
		"outside 0.."},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"added_tokens":[{"id":1,"content":"a"}]}`, "has ids 0 and 1"},
	// As in Gemma's vocabulary, tokens hold white space; the tokenizers library splits a merge at plain spaces alone.
	{`{"model":{"type":"BPE","vocab":{"\n":0,"\u2003":1,"\n\u2003":2},"merges":["\n \u2003"]},` + post + `}`, ""},
	{`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a  b"]}}`, "where two tokens are wanted"},
	{`{"model":{"type":"Unigram","vocab":[["a",1e999]]}}`, "JSON of a vocabulary"},
	{`{"model":{"type":"Unigram","vocab":[["a"]]}}`, "a token and its score are wanted"},
	{`{"model":{"type":"Unigram","unk_id":7,"vocab":[["a",0]]}}`, "unk_id 7"},
	{`{"model":{"type":"Unigram","vocab":[]}}`, "the vocabulary is empty"},
	{`{"model":{"type":"Unigram","vocab":[["a",0],["b",-1]]},"normalizer":{"type":"Precompiled",` +
		`"precompiled_charsmap":"/////w=="}}`, "table of replacements is damaged"},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"normalizer":{"type":"Reverse"}}`, `normalizer "Reverse"`},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"normalizer":` +
		strings.Repeat(`{"type":"Sequence","normalizers":[`, 99) + strings.Repeat(`]}`, 99) + `}`, "nest more than 8"},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},` +
		`"behavior":"Isolated"}}`, "regular expression"},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},` +
		`"behavior":"Both"}}`, `behavior "Both"`},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"Metaspace","replacement":"ab"}}`,
		"must be one character"},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"UnicodeScripts"}}`, `"UnicodeScripts"`},
	{`{"model":{"type":"BPE","vocab":{"a":0}},"post_processor":{"type":"TemplateProcessing","single":` +
		`[{"SpecialToken":{"id":"x"}}],"special_tokens":{}}}`, "neither the text nor a special token"},
	{`{"model":{"type":"BPE","vocab":{"a":0,"b":1}},"padding":{"direction":"Left","pad_id":0},` + post + `}`,
		"only Right"},
	{`{"model":{"type":"BPE","vocab":{"a":0,"b":1}},"padding":{"pad_id":9},` + post + `}`, "no token has id 9"},
	{`{"model":null,"model":{"type":"Unigram","vocab":[["a",0]]}}`, "puts 0 tokens before a text"},
	{`{"model":[],"added_tokens":{}}`, "not the JSON of a vocabulary"},
}

func TestHostileFiles(t *testing.T) {
	for _, c := range hostileFiles {
		_, err := readHF(strings.NewReader(c.data))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n")) {
			t.Errorf("%.200s: %v, want %q", c.data, err, c.want)
		}
	}
	// An expression that would take exponential time is stopped.
	tok, err := readHF(strings.NewReader(`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}},` + post +
		`,"normalizer":{"type":"Replace","pattern":{"Regex":"(a+)+$"},"content":""}}`))
	goldentest.NoError(t, err)
	if _, err := tok.Encode(strings.Repeat("a", 60) + "b"); err == nil || !strings.Contains(err.Error(), "(a+)+$") {
		t.Errorf("error %v", err)
	}
	// Three units of a trie and one text: "a" becomes a byte that is no character, which is U+FFFD in its place.
	tok, err = readHF(strings.NewReader(`{"model":{"type":"WordLevel","unk_token":"c","vocab":{"c":0,"\ufffdc":1}},` +
		post + `,"normalizer":{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":"` +
		`DAAAAACAAQBhDQAAAAAAAP8A"},{"type":"Replace","pattern":{"Regex":"b"},"content":"c"}]}}`))
	goldentest.NoError(t, err)
	if ids, err := tok.Encode("ab"); err != nil || !slices.Equal(ids, []int{1}) {
		t.Errorf("%v, %v", ids, err)
	}
	// A text that grows with each step is stopped too.
	tok, err = readHF(strings.NewReader(`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}},` + post +
		`,"normalizer":{"type":"Sequence","normalizers":[` + strings.Repeat(
		`{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaaaaaaaa"},`, 30) + `{"type":"NFC"}]}}`))
	goldentest.NoError(t, err)
	if _, err := tok.Encode("a"); err == nil || !strings.Contains(err.Error(), "makes more than") {
		t.Errorf("error %v", err)
	}
	// By hand, SentencePiece's file of two usual pieces, </s> and a.
	_, err = readSPM(strings.NewReader("\x0a\x06\x0a\x04</s>\x0a\x03\x0a\x01a"), true, true)
	goldentest.WantError(t, err, "no token for unknown characters")
}

// FuzzReadBERT reads BERT's lists.
func FuzzReadBERT(f *testing.F) {
	f.Add([]byte("[PAD]\n[CLS]\n[SEP]\n[UNK]\na\n##a\n##b\n"))
	f.Add([]byte("[CLS]\r\n[SEP]\n[UNK]\n\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := readBERT(strings.NewReader(string(data)), hfConfig{}); err == nil {
			reload(t, tok)
		}
	})
}

// FuzzReadSPM reads SentencePiece's files.
func FuzzReadSPM(f *testing.F) {
	piece := func(token, kind string) string {
		p := "\x0a" + string(rune(len(token))) + token + "\x15\x00\x00\x80\xbf\x18" + kind
		return "\x0a" + string(rune(len(p))) + p
	}
	f.Add([]byte(piece("</s>", "\x03") + piece("u", "\x02") + piece("a", "\x01")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := readSPM(strings.NewReader(string(data)), true, true); err == nil {
			reload(t, tok)
		}
	})
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
		got := ""
		for _, id := range ids {
			if id < 0 || id >= tok.VocabSize() {
				t.Fatalf("id %d", id)
			}
			got += strings.TrimSuffix(tok.tokens[id], wordEnd)
		}
		if want := visible(squeeze(Clean(text))); got != want {
			t.Fatalf("the tokens of %q are %q, want %q", text, got, want)
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
	for _, kind := range hostileFiles {
		f.Add([]byte(kind.data))
	}
	for _, name := range []string{"bert", "gemma", "t5", "words"} {
		data := filetest.Read(f, "testdata/files/"+name+"/tokenizer.json")
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := readHF(strings.NewReader(string(data))); err == nil {
			reload(t, tok)
		}
	})
}

// reload checks that an accepted tokenizer can be stored, read again and used.
func reload(t *testing.T, tok *Tokenizer) {
	t.Helper()
	dir := t.TempDir()
	goldentest.NoError(t, tok.WriteHF(dir))
	back := load(t, dir)
	same(t, tok, back)
	tok.Encode("aaa ing low aaaab")
}
