package exported_test

import (
	"path/filepath"
	"slices"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/exported"
	"promptfed/models/tokenizer"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// OpenCLIP's configuration beside exported towers sets the treatment of texts, bundle.json takes precedence, and a
// recorded bundle keeps it. models/checkpoint determines the treatment of a configuration. CLIP's own tokenizer
// converts "A_b." to a, _, b and . with its own cleaning, and to a and b with canonicalize.
func TestTextsOfExports(t *testing.T) {
	plain, err := bundle.Open(layouts + "/immich")
	goldentest.NoError(t, err)
	own, err := plain.Tokenizer()
	goldentest.NoError(t, err)
	digests := []string{plain.Digest()}
	const text, config, manifest = "A_b.", "config.json", bundle.ManifestFile
	head := func(more string) string {
		return `{"embed_dim":6,"vision_cfg":{"image_size":16},"text_cfg":{"context_length":32` + more + `}}`
	}
	canonical := head(`,"hf_tokenizer_name":"x","tokenizer_kwargs":{"clean":"canonicalize"}`)
	strip := head(`,"hf_tokenizer_name":"x","pool_type":"last","tokenizer_kwargs":{"strip_sep_token":true}`)
	for _, c := range []struct {
		what  string
		files map[string]string
		same  string // a text with the same ids
		want  string // the treatment's cleaning, or the error
	}{
		{"config.json", map[string]string{config: canonical}, "a b", tokenizer.Canonicalize},
		{"beside the tower", map[string]string{"textual/open_clip_config.json": `{"model_cfg":` + canonical + `}`},
			"a b", tokenizer.Canonicalize},
		{"transformers' file of CLIP's tokenizer", map[string]string{config: head(`,"hf_tokenizer_name":"x"`)}, text,
			""},
		{"bundle.json", map[string]string{config: canonical, manifest: `{"texts":{"clean":"lower"}}`}, text,
			tokenizer.Lower},
		{"one file of the tokenizer", map[string]string{manifest: `{"tokenizer":"textual/vocab.json"}`}, text, ""},
		{"and another one beside it", map[string]string{manifest: `{"tokenizer":"textual/vocab.json"}`,
			"textual/tokenizer_config.json": `{}`}, text, ""},
		{"nothing in bundle.json", map[string]string{config: canonical, manifest: `{"texts":{}}`}, text, ""},
		{"stripped", map[string]string{config: strip}, "", "strip_sep_token is not supported for exported towers"},
		{"another mode", map[string]string{config: head(`,"tokenizer_mode":"clips"`)}, "",
			`config.json: text_cfg.tokenizer_mode "clips"`},
		{"a wrong key", map[string]string{manifest: `{"texts":{"clean":"upper"}}`}, "", `clean is "upper"`},
	} {
		dir := copyLayout(t, "immich")
		for name, data := range c.files {
			filetest.Write(t, filepath.Join(dir, name), data)
		}
		b, err := bundle.Open(dir)
		if c.same == "" {
			goldentest.WantErrorOf(t, c.what, err, c.want)
			continue
		}
		if err != nil {
			t.Fatal(c.what, err)
		}
		want, err := own.Encode(c.same)
		goldentest.NoError(t, err)
		frozen := filepath.Join(t.TempDir(), "frozen")
		goldentest.NoError(t, exported.WriteRecorded(b, frozen, false))
		again, err := bundle.Open(frozen)
		goldentest.NoError(t, err)
		for _, b := range []*bundle.Bundle{b, again} {
			tok, err := b.Tokenizer()
			goldentest.NoError(t, err)
			if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want) || b.Texts.Clean != c.want {
				t.Errorf("%s: %v of %+v, %v, want %v", c.what, got, b.Texts, err, want)
			}
		}
		digests = append(digests, b.Digest())
	}
	slices.Sort(digests)
	if n := len(slices.Compact(digests)); n != 8 {
		t.Errorf("%d digests of 8 bundles", n)
	}
}
