package converted_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

const openCLIPTexts = "testdata/openclip-texts"

// textCases is texts.json of tools/golden/openclip_texts.py.
type textCases struct {
	Classes, Templates, Sentences []string
	Cases                         []struct {
		Name, Tokenizer string
		Config          json.RawMessage
	}
}

func readTextCases(t *testing.T) (all textCases) {
	goldentest.ReadJSON(t, openCLIPTexts+"/texts.json", &all)
	return all
}

// withConfig converts the small OpenCLIP model with a configuration and a tokenizer.
func withConfig(t *testing.T, config []byte, vocabulary string) (*bundle.Bundle, error) {
	dir := t.TempDir()
	weights := filetest.Read(t, openCLIPTexts+"/open_clip_model.safetensors")
	for name, data := range map[string][]byte{"open_clip_model.safetensors": weights, "open_clip_config.json": config} {
		filetest.Write(t, filepath.Join(dir, name), data)
	}
	return converted.Convert(dir, filepath.Join(t.TempDir(), "b"), converted.Options{Vocab: vocabulary})
}

// constants runs a graph without inputs; an unused input is added.
func constants(t *testing.T, b *bundle.Bundle, g *graph.Graph, outputs []graph.Output) tensor.Map {
	one := g.Input("one", graph.Float, graph.Static(1))
	for i := range outputs {
		outputs[i].Node = outputs[i].Node.Mul(one)
	}
	model := orttest.Model(t, outputs...)
	return orttest.Run(t, model, b.WeightsDir(), tensor.Map{"one": tensor.Of([]float32{1}, 1)})
}

// Sentences, and class prompts that are assembled from words and class names, have the features that OpenCLIP computes
// for the whole texts, for each treatment of texts.
func TestTreatedTexts(t *testing.T) {
	orttest.RequireLibrary(t)
	want := orttest.Golden(t, openCLIPTexts+"/golden.safetensors")
	all := readTextCases(t)
	for _, c := range all.Cases {
		t.Run(c.Name, func(t *testing.T) {
			b, err := withConfig(t, c.Config, vocabularies+c.Tokenizer)
			goldentest.NoError(t, err)
			g := graph.New()
			whole := bundletest.Sentences(t, b, g, all.Sentences...)
			outputs := []graph.Output{{Name: "sentences", Node: whole}}
			prompts := bundletest.Templates(t, b, g, all.Classes, all.Templates)
			words, err := b.Words("a photo of a")
			goldentest.NoError(t, err)
			// Without the first template, as for learned prompts.
			prompts = append(prompts, clip.Prompt{Ctx: g.Const(words)})
			f := bundletest.Prompts(t, b, g, all.Classes, prompts...)
			for i, template := range append(all.Templates, "learned") {
				outputs = append(outputs, graph.Output{Name: template, Node: f[i]})
			}
			out := constants(t, b, g, outputs)
			for _, o := range outputs {
				name := o.Name
				if name == "learned" {
					name = all.Templates[0]
				}
				orttest.CheckClose(t, o.Name, out[o.Name], want[c.Name+" "+name])
			}
		})
	}
}

// Prompts with the class name in front or in the middle, and a prompt without a class, also equal the whole text, both
// if a full stop has a token and if the cleaning removes it. The words of the prompt are tokens of the vocabulary.
func TestTreatedPlaces(t *testing.T) {
	orttest.RequireLibrary(t)
	for _, c := range readTextCases(t).Cases {
		if c.Tokenizer != "bert" {
			continue
		}
		b, err := withConfig(t, c.Config, vocabularies+c.Tokenizer)
		goldentest.NoError(t, err)
		words, err := b.Words("the dog")
		if err != nil || words.Shape[0] != 2 {
			t.Fatal(words, err)
		}
		alone, err := b.EmptySuffix()
		goldentest.NoError(t, err)
		g := graph.New()
		ctx := g.Const(words)
		f := bundletest.Prompts(t, b, g, []string{"cat", "sea_lion"}, clip.Prompt{Ctx: ctx, Class: clip.Front},
			clip.Prompt{Ctx: ctx, Class: clip.Middle}, clip.Prompt{Ctx: ctx, Own: alone})
		var outputs []graph.Output
		for i, texts := range [][]string{{"cat the dog.", "sea_lion the dog."}, {"the cat dog.", "the sea_lion dog."},
			{"the dog."}} {
			whole := bundletest.Sentences(t, b, g, texts...)
			outputs = append(outputs, graph.Output{Name: "got " + texts[0], Node: f[i]},
				graph.Output{Name: "want " + texts[0], Node: whole})
		}
		out := constants(t, b, g, outputs)
		for i := 0; i < len(outputs); i += 2 {
			orttest.CheckClose(t, c.Name+": "+outputs[i].Name, out[outputs[i].Name], out[outputs[i+1].Name])
		}
	}
}

// The manifest has the treatment, which is part of the digest, and a bundle whose configuration has no settings of
// texts has no such key. The tokenizer file of the bundle is the same for all treatments.
func TestTreatmentOfBundle(t *testing.T) {
	digests := map[string]string{}
	var file []byte
	for _, c := range []struct{ text, want string }{
		{``, ""},
		{`"hf_tokenizer_name":"x"`, `"texts": {"clean": "whitespace"}`},
		{`"hf_tokenizer_name":"x","tokenizer_kwargs":{"strip_sep_token":true}`,
			`"texts": {"clean": "whitespace", "strip_sep_token": true, "sep_token": "[SEP]"}`},
		{`"tokenizer_kwargs":{"clean":"canonicalize"}`, `"texts": {"clean": "canonicalize"}`},
	} {
		b, err := withConfig(t, small(c.text), vocabularies+"bert")
		goldentest.NoError(t, err)
		data := filetest.Read(t, filepath.Join(b.Dir, bundle.ManifestFile))
		text := strings.Join(strings.Fields(string(data)), " ")
		for _, bracket := range []string{"{", "}"} {
			text = strings.ReplaceAll(strings.ReplaceAll(text, bracket+" ", bracket), " "+bracket, bracket)
		}
		if want := strings.ReplaceAll(c.want, ": {", ":{"); !strings.Contains(text, want) ||
			strings.Contains(text, `"texts"`) != (want != "") {
			t.Errorf("%s: bundle.json without %s: %s", c.text, want, text)
		}
		if had, twice := digests[b.Digest()]; twice {
			t.Errorf("%s and %s have one digest", had, c.text)
		}
		digests[b.Digest()] = c.text
		again := filetest.Read(t, filepath.Join(b.Dir, "tokenizer.json"))
		if file == nil {
			file = again
		}
		if !bytes.Equal(file, again) {
			t.Errorf("%s: another tokenizer.json", c.text)
		}
		tok, err := b.Tokenizer()
		if err != nil || tok.Cleaning() != b.Texts {
			t.Errorf("%s: %+v, %v, of the bundle %+v", c.text, tok.Cleaning(), err, b.Texts)
		}
		r, err := bundle.Inspect(b.Dir)
		if err != nil || r.Bundle.Texts != b.Texts {
			t.Errorf("%s: the report has %+v, %v", c.text, r.Bundle.Texts, err)
		}
	}
}

// small returns the configuration of the small OpenCLIP model with additional fields in its text_cfg.
func small(text string) []byte {
	if text != "" {
		text = "," + text
	}
	return []byte(`{"model_cfg":{"embed_dim":6,"vision_cfg":{"image_size":8,"layers":1,"width":8,"head_width":4,` +
		`"patch_size":4},"text_cfg":{"context_length":40,"vocab_size":900,"width":8,"heads":2,"layers":2,` +
		`"no_causal_mask":true,"pool_type":"last","proj_bias":true` + text + `}}}`)
}

// Unsupported settings of texts in a checkpoint or a bundle are errors of one line.
func TestTreatmentErrorsOfBundles(t *testing.T) {
	for _, c := range []struct{ text, vocabulary, want string }{
		{`"hf_tokenizer_name":"x","tokenizer_kwargs":{"strip_sep_token":true}`, vocabularies + "t5", "sep_token"},
		{`"hf_tokenizer_name":"x","tokenizer_kwargs":{"language":"fra"}`, vocabularies + "bert",
			"tokenizer_kwargs.language"},
		{`"hf_tokenizer_name":"x","tokenizer_mode":"clips"`, vocabularies + "bert", "tokenizer_mode"},
	} {
		_, err := withConfig(t, small(c.text), c.vocabulary)
		goldentest.WantErrorOf(t, c.text, err, c.want)
	}
	b, err := withConfig(t, small(`"hf_tokenizer_name":"x","tokenizer_kwargs":{"strip_sep_token":true}`),
		vocabularies+"bert")
	goldentest.NoError(t, err)
	path := filepath.Join(b.Dir, bundle.ManifestFile)
	data := filetest.Read(t, path)
	for old, change := range map[string][2]string{
		`"clean": "whitespace"`: {`"clean": "upper"`, `texts: clean is "upper"`},
		`"[SEP]"`:               {`"[NO]"`, `sep_token "[NO]" is not in the vocabulary`},
	} {
		if !bytes.Contains(data, []byte(old)) {
			t.Fatalf("no %s in %s", old, data)
		}
		filetest.Write(t, path, bytes.Replace(data, []byte(old), []byte(change[0]), 1))
		b, err := bundle.Open(b.Dir)
		if err == nil {
			_, err = b.Tokenizer()
		}
		goldentest.WantErrorOf(t, old, err, change[1])
	}
}
