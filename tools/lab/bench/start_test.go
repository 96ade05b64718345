package bench

import (
	"path/filepath"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/models/tokenizer"
	"promptfed/runtime/goldentest"
)

// The bundle that Start writes has the vocabulary of CLIP's size and towers of the given sizes.
func TestWriteBundle(t *testing.T) {
	vision := clip.VisionArch{Width: 64, Layers: 1, Heads: 1, Image: 32, Patch: 16, EmbedDim: small.EmbedDim}
	out := filepath.Join(t.TempDir(), "bundle")
	goldentest.NoError(t, writeBundle(t.TempDir(), out, small, vision))
	b, err := bundle.Open(out)
	goldentest.NoError(t, err)
	words, err := b.Tokenizer()
	goldentest.NoError(t, err)
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
