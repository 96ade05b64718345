package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func small(t testing.TB) *Tokenizer {
	t.Helper()
	f, err := os.Open("testdata/merges-1000.txt")
	goldentest.NoError(t, err)
	defer f.Close()
	tok, err := FromMerges(f, 1000)
	goldentest.NoError(t, err)
	return tok
}

// full is CLIP's own vocabulary, from the shared data beside the checkout.
func full(t testing.TB) *Tokenizer {
	t.Helper()
	return load(t, goldentest.Shared(t, "clip-vocab/bpe_simple_vocab_16e6.txt.gz"))
}

// load reads a tokenizer that must be valid.
func load(t testing.TB, path string) *Tokenizer {
	t.Helper()
	tok, err := Load(path)
	goldentest.NoError(t, err)
	return tok
}

type goldenCase struct {
	Text, Clean string
	Full, Small []int
}

// golden holds what tools/golden/tokenizer.py computed with ftfy, regex and
// merges on strings.
func golden(t testing.TB) []goldenCase {
	t.Helper()
	var cases []goldenCase
	goldentest.ReadJSON(t, "testdata/golden.json", &cases)
	return cases
}

func TestGoldenSmall(t *testing.T) {
	tok := small(t)
	if tok.VocabSize() != 1514 || tok.SOS() != 1512 || tok.EOT() != 1513 {
		t.Fatalf("size %d, start %d, end %d", tok.VocabSize(), tok.SOS(), tok.EOT())
	}
	for _, c := range golden(t) {
		if got := Clean(c.Text); got != c.Clean {
			t.Errorf("Clean(%q) = %q, want %q", c.Text, got, c.Clean)
		}
		got, err := tok.Encode(c.Text)
		if err != nil || !slices.Equal(got, c.Small) {
			t.Errorf("Encode(%q) = %v, %v, want %v", c.Text, got, err, c.Small)
		}
	}
}

func TestGoldenFull(t *testing.T) {
	tok := full(t)
	if tok.VocabSize() != 49408 || tok.SOS() != 49406 || tok.EOT() != 49407 {
		t.Fatalf("size %d, start %d, end %d", tok.VocabSize(), tok.SOS(), tok.EOT())
	}
	for _, c := range golden(t) {
		got, err := tok.Encode(c.Text)
		if err != nil || !slices.Equal(got, c.Full) {
			t.Errorf("Encode(%q) = %v, %v, want %v", c.Text, got, err, c.Full)
		}
	}
}

// TestSequence uses the ids printed in the README of OpenAI's CLIP for "a diagram".
func TestSequence(t *testing.T) {
	tok := full(t)
	got, err := tok.Sequence("a diagram", 77)
	want := append([]int64{49406, 320, 22697, 49407}, make([]int64, 73)...)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := tok.Sequence("a diagram", 4); err != nil {
		t.Errorf("a text that just fits: %v", err)
	}
	_, err = tok.Sequence("a diagram", 3)
	want2 := `tokenizer: text "a diagram" takes 4 tokens with start and end, the context has 3: shorten it`
	if err == nil || err.Error() != want2 {
		t.Errorf("got %v", err)
	}
}

// TestMergeOrder is computed by hand: with merges a b, ab c, b c</w> the word "abc" has pairs (a,b) of rank 0 and
// (b,c</w>) of rank 2. The first pair is joined, and (ab,c</w>) is no merge, because the listed one joins a c inside a
// word.
func TestMergeOrder(t *testing.T) {
	tok, err := FromMerges(strings.NewReader("#version: 0.2\na b\nab c\nb c</w>\n"), 3)
	goldentest.NoError(t, err)
	ids, err := tok.Encode("ABC abcd bc")
	goldentest.NoError(t, err)
	// Letters start at '!' = 0, so c = 66 and d = 67; with </w> add 256; merges start at 512.
	if want := []int{512, 66 + 256, 513, 67 + 256, 514}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}

func TestEncodeErrors(t *testing.T) {
	tok := small(t)
	for text, want := range map[string]string{
		"a\xffb":                     "not valid UTF-8",
		strings.Repeat("a", 1<<14+1): "the limit is 16384",
	} {
		_, err := tok.Encode(text)
		goldentest.WantErrorOf(t, text, err, want)
	}
}

// TestWriteLoad stores a vocabulary and reads it again, from the folder and from the two older files derived from it.
func TestWriteLoad(t *testing.T) {
	tok := small(t)
	dir := t.TempDir()
	goldentest.NoError(t, tok.WriteHF(dir))
	first := filetest.Read(t, filepath.Join(dir, "tokenizer.json"))
	if !json.Valid(first) {
		t.Fatal("tokenizer.json is not JSON")
	}
	back := load(t, dir)
	same(t, tok, back)
	var again bytes.Buffer
	if err := back.Write(&again); err != nil || !bytes.Equal(first, again.Bytes()) {
		t.Errorf("written again: %v, equal %v", err, bytes.Equal(first, again.Bytes()))
	}

	old := t.TempDir()
	vocab := goldentest.JSON(t, tok.ids)
	merges := filetest.Read(t, "testdata/merges-1000.txt")
	for name, data := range map[string][]byte{"vocab.json": vocab, "merges.txt": merges} {
		filetest.Write(t, filepath.Join(old, name), data)
	}
	for _, path := range []string{old, filepath.Join(old, "vocab.json"), filepath.Join(old, "merges.txt")} {
		back := load(t, path)
		same(t, tok, back)
	}
}

func same(t *testing.T, a, b *Tokenizer) {
	t.Helper()
	if d := cmp.Diff(a.ids, b.ids); d != "" {
		t.Error(d)
	}
	if !slices.Equal(a.merges, b.merges) || a.VocabSize() != b.VocabSize() || a.SOS() != b.SOS() || a.EOT() != b.EOT() {
		t.Error("merges, size or special tokens differ")
	}
}

// TestIncompleteVocabulary has gaps in its ids and few bytes, like small test models, and merges in both of Hugging
// Face's notations.
func TestIncompleteVocabulary(t *testing.T) {
	const head = `{"added_tokens":[{"id":9,"content":"<|startoftext|>"},{"id":7,"content":"<|endoftext|>"}],
		"model":{"type":"BPE","end_of_word_suffix":"</w>",
		"vocab":{"l":0,"o":1,"w</w>":2,"lo":3,"low</w>":4,"<|endoftext|>":7},"merges":`
	for _, merges := range []string{`["l o","lo w</w>"]`, `[["l","o"],["lo","w</w>"]]`} {
		tok, err := readHF(strings.NewReader(head + merges + `}}`))
		goldentest.NoError(t, err)
		if tok.VocabSize() != 10 || tok.SOS() != 9 || tok.EOT() != 7 {
			t.Errorf("size %d, start %d, end %d", tok.VocabSize(), tok.SOS(), tok.EOT())
		}
		if ids, err := tok.Encode("Low"); err != nil || !slices.Equal(ids, []int{4}) {
			t.Errorf("low: %v, %v", ids, err)
		}
		_, err = tok.Encode("low x")
		goldentest.WantErrorOf(t, "x", err, `word "x": the vocabulary has no token`)
	}
}

func TestConcurrentEncode(t *testing.T) {
	tok := small(t)
	cases := golden(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, c := range cases {
				if got, err := tok.Encode(c.Text); err != nil || !slices.Equal(got, c.Small) {
					t.Errorf("Encode(%q) = %v, %v", c.Text, got, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkEncode(b *testing.B) {
	tok := small(b)
	for b.Loop() {
		if _, err := tok.Encode("a low resolution photo of the hard to see Yorkshire Terrier."); err != nil {
			b.Fatal(err)
		}
	}
}
