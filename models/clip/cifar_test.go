package clip_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/models/clip"
	"promptfed/models/tokenizer"
	"promptfed/runtime/goldentest"
)

// The reference is models/tokenizer with CLIP's published vocabulary, which is checked against the original's
// libraries.
func TestNamedClassesAreTokenized(t *testing.T) {
	vocabulary := filepath.Join("..", "..", "..", "shared", "data", "clip-vocab", "bpe_simple_vocab_16e6.txt.gz")
	if _, err := os.Stat(vocabulary); err != nil {
		t.Skip("CLIP's vocabulary is not there")
	}
	tok, err := tokenizer.Load(vocabulary)
	goldentest.NoError(t, err)
	if tok.SOS() != clip.StartID || tok.EOT() != clip.EndID {
		t.Errorf("special tokens are %d and %d", tok.SOS(), tok.EOT())
	}
	for _, set := range []clip.NamedClasses{clip.CIFAR10, clip.CIFAR100} {
		names := set.Names()
		slices.Sort(names)
		if n := len(slices.Compact(names)); n != len(set) {
			t.Errorf("%d of %d names differ", n, len(set))
		}
		for i, c := range set {
			ids, err := tok.Encode(c.Name + ".")
			goldentest.NoError(t, err)
			if got := set.Suffixes()[i]; !slices.Equal(got, append(ids, tok.EOT())) {
				t.Errorf("%s: tokens %v, the tokenizer gives %v and the end", c.Name, got, ids)
			}
		}
	}
}
