package experiment

import (
	"path/filepath"
	"slices"
	"testing"

	"promptfed/models/bundle/converted"
	"promptfed/runtime/ort/orttest"
)

// KgCoOp's parameter begins at zero and is added to the embeddings of four words. The trace has the words, with their
// ids in CLIP's vocabulary (clip.tokenize of OpenAI's code returns 320 1125 539 320), and their rows.
func TestTraceHasTheWordsOfAnOffset(t *testing.T) {
	orttest.RequireLibrary(t)
	b := open(t, smallConfig("kgcoop"))
	info, err := b.Trace(nil)
	if err != nil {
		t.Fatal(err)
	}
	const words = "a photo of a"
	p := info.Clients[0].Parameters
	if len(p) != 1 || p[0].Name != "ctx" || p[0].Owner != "shared" || p[0].Words != words {
		t.Errorf("the parameters are %+v, want ctx on %q", p, words)
	}
	ids := info.Bundles[0].Words[words]
	if !slices.Equal(ids, []int{320, 1125, 539, 320}) {
		t.Errorf("the ids of %q are %v", words, ids)
	}
	rows, err := b.Task.Backbones.Distinct[0].Embed(ids)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Words["0/"+words]; got == nil || !slices.Equal(got.Data, rows) || got.Shape[0] != 4 {
		t.Errorf("the embeddings of %q are %v", words, got)
	}
}

// A SigLIP has no start token: sos is -1, and no sequence holds it. Its texts are padded to the context and read at the
// last position, as transformers' SiglipTextTransformer does.
func TestTraceOfATowerWithoutStartToken(t *testing.T) {
	orttest.RequireLibrary(t)
	dir := filepath.Join(t.TempDir(), "siglip")
	if _, err := converted.Convert("../../models/bundle/converted/testdata/siglip", dir,
		converted.Options{}); err != nil {
		t.Fatal(err)
	}
	c := smallConfig("promptfl")
	c.Backbones, c.Train.Loss, c.Data.Template = []string{dir}, sigmoidLoss, "a {}"
	c.Options = map[string]any{"tokens": 3}
	info, err := open(t, c).Trace(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := info.Bundles[0]
	if b.SOS != -1 || b.Text.Pool != "last" || !b.Text.Bidirectional || !b.Sigmoid || b.LogitBias == 0 {
		t.Errorf("sos %d, text %+v, sigmoid %v, bias %g", b.SOS, b.Text, b.Sigmoid, b.LogitBias)
	}
	for _, list := range slices.Concat(b.Tokens, b.HandTokens, b.NameTokens) {
		if slices.Min(list) < 0 || list[len(list)-1] != b.EOT {
			t.Errorf("the sequence %v has ids that no embedding has, or does not end with %d", list, b.EOT)
		}
	}
}
