package tiny

import (
	"bytes"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"promptfed/models/checkpoint"
	"promptfed/models/tokenizer"
	"promptfed/runtime/goldentest"
)

// The relations of the four backbones are those of the published ones: patches of the transformers differ by a factor
// of two, the second ResNet is deeper, prompts have one width, there is one vocabulary, and features have different
// sizes. Their configurations leave nothing to guess.
func TestBackbones(t *testing.T) {
	if want := []string{"tiny-rn101", "tiny-rn50", "tiny-vit-b16", "tiny-vit-b32"}; !slices.Equal(Names(), want) {
		t.Fatalf("names are %v, want %v", Names(), want)
	}
	var arch []checkpoint.Arch
	for _, name := range Names() {
		files, err := FS(name)
		goldentest.NoError(t, err)
		dir := t.TempDir()
		goldentest.NoError(t, os.CopyFS(dir, files))
		c, err := checkpoint.Open(dir, checkpoint.Options{})
		goldentest.NoError(t, err)
		defer c.Close()
		w, err := checkpoint.CLIP(c)
		goldentest.NoError(t, err)
		a := w.Arch
		if len(a.Warnings) > 0 {
			t.Errorf("%s: the reader had to guess: %v", name, a.Warnings)
		}
		if a.Vision.ResNet() != strings.HasPrefix(name, "tiny-rn") || a.Vision.Image != 64 ||
			a.Text.Context != 77 || a.Text.Activation != checkpoint.QuickGELU {
			t.Errorf("%s is %+v", name, a)
		}
		arch = append(arch, a)

		tok, err := tokenizer.Load(dir)
		goldentest.NoError(t, err)
		if tok.VocabSize() != a.Vocab {
			t.Errorf("%s: %d tokens and %d embeddings", name, tok.VocabSize(), a.Vocab)
		}
		size := int64(0)
		err = fs.WalkDir(files, ".", func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				info, e := d.Info()
				size, err = size+info.Size(), e
			}
			return err
		})
		if err != nil || size > 6<<20 {
			t.Errorf("%s: %d bytes, %v", name, size, err)
		}
	}
	deep, shallow, fine, coarse := arch[0], arch[1], arch[2], arch[3]
	if coarse.Vision.Patch != 2*fine.Vision.Patch || deep.Vision.Stages[2] <= shallow.Vision.Stages[2] {
		t.Errorf("patches %d and %d, stages %v and %v", fine.Vision.Patch, coarse.Vision.Patch, shallow.Vision.Stages,
			deep.Vision.Stages)
	}
	joint := map[int]bool{}
	for _, a := range arch {
		if joint[a.Text.EmbedDim] = true; a.Text.Width != fine.Text.Width {
			t.Errorf("prompt widths %d and %d", a.Text.Width, fine.Text.Width)
		}
	}
	if len(joint) < 3 {
		t.Errorf("embedding dimensions %v", joint)
	}
	_, err := FS("tiny-vit-l14")
	goldentest.WantErrorOf(t, "an unknown name", err, "tiny-vit-b16, tiny-vit-b32")
}

func TestMerges(t *testing.T) {
	tok, err := tokenizer.FromMerges(bytes.NewReader(Merges()), 1000)
	goldentest.NoError(t, err)
	// 256 bytes, 256 bytes that end a word, 1,000 merges, start and end of text.
	if tok.VocabSize() != 1514 {
		t.Errorf("%d tokens, want 1514", tok.VocabSize())
	}
}
