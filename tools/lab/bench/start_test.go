package bench

import (
	"path/filepath"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/models/tokenizer"
)

// The bundle that Start writes has the vocabulary of CLIP's size and towers of the given sizes.
func TestWriteBundle(t *testing.T) {
	vision := clip.VisionArch{Width: 64, Layers: 1, Heads: 1, Image: 32, Patch: 16, EmbedDim: small.EmbedDim}
	out := filepath.Join(t.TempDir(), "bundle")
	if err := writeBundle(t.TempDir(), out, small, vision); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	words, err := b.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	if n := tokenizer.CLIPMerges + 2*256 + 2; words.VocabSize() != n || b.TokenRows != n {
		t.Errorf("%d tokens and %d embeddings, want %d", words.VocabSize(), b.TokenRows, n)
	}
	if ids, err := words.Encode("dog"); err != nil || len(ids) != 2 {
		t.Errorf("dog is %v, %v: want a merge of two characters, and the last one with the end of the word", ids, err)
	}
	if b.Text.Layers != small.Layers || b.Vision.Width != vision.Width {
		t.Errorf("text %+v, image %+v", b.Text, b.Vision)
	}
}
