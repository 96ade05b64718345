package converted

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// Names of the files of every bundle.
const (
	ImageFile     = "image.onnx"
	TextFile      = "text.onnx"
	tokenizerFile = "tokenizer.json"
	weightsFile   = "weights.safetensors"
)

// Format is the format of this package (bundle.RegisterFormat). A bundle.json that lists weights, or is not JSON, has
// this format.
var Format = bundle.Format{NameOf: nameOf, Open: openSpec, Inspect: inspect}

func nameOf(dir string) (string, bool) {
	data, err := bundle.ReadManifest(dir)
	if err != nil {
		return "", false
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(data, &keys) == nil && keys["weights"] == nil && keys["vision"] == nil {
		return "", false
	}
	m, err := parseManifest(data)
	if err != nil {
		return "", true
	}
	return m.Name, true
}

func openSpec(s bundle.Spec) (*bundle.Bundle, error) { return open(s.Folder) }

func open(dir string) (*bundle.Bundle, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	if err := bundle.Verify(dir, m.Files, false, remedy); err != nil {
		return nil, err
	}
	return newBundle(dir, m), nil
}

// remedy is the next step if a file differs from bundle.json.
const remedy = "convert the checkpoint again"

func newBundle(dir string, m Manifest) *bundle.Bundle {
	return &bundle.Bundle{Name: m.Name, Architecture: m.Architecture, Source: m.Source, Text: m.Text, Vision: m.Vision,
		LogitScale: m.LogitScale, LogitBias: m.LogitBias, Preprocess: m.Preprocess, Notes: m.Notes,
		Origin: m.Origin, Dir: dir, Vocabulary: m.TokenizerFile, Texts: m.Texts,
		TokenRows: m.Tokens.Shape[0], Towers: towers{dir, m}}
}

// towers implements bundle.Towers.
type towers struct {
	dir string
	m   Manifest
}

// Weights returns the tensors of both towers of a converted bundle, as constants that stay in their files, with paths
// relative to the bundle's folder. It returns false for other bundles.
func Weights(b *bundle.Bundle) (clip.Weights, bool) {
	t, ok := b.Towers.(towers)
	return table(t.m.Weights), ok
}

func (t towers) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error) {
	image, patches = clip.Vision{VisionArch: t.m.Vision}.PromptedFeatures(g, table(t.m.Weights), pixels, p)
	return image, patches, nil
}

func (t towers) ImageModel() (*onnx.ModelProto, error) {
	return onnx.ReadFile(filepath.Join(t.dir, ImageFile))
}

func (towers) Batch() int { return 0 }

func (t towers) Patches() int { return t.m.Vision.Patches() }

func (t towers) Tokens() int { return t.m.Vision.Tokens() }

func (towers) TakesPromptTokens() bool { return true }

// ClassFeatures computes all prompts in one pass, in the cheap exact form if the class name is at the end of the
// prompt, and else in the plain form.
func (t towers) ClassFeatures(g *graph.Graph, s *clip.Suffixes, prompts []clip.Prompt) ([]graph.Node, error) {
	return clip.Text{TextArch: t.m.Text}.Prompts(g, table(t.m.Weights), s, prompts), nil
}

func (t towers) TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error) {
	return clip.Text{TextArch: t.m.Text}.Sequences(g, table(t.m.Weights), ids, t.Embed), nil
}

func (t towers) Embed(ids []int) ([]float32, error) {
	p := t.m.Tokens
	f, err := os.Open(filepath.Join(t.dir, p.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bundle.EmbeddingRows(f, p.Offset, p.DType, p.Shape[0], p.Shape[1], ids)
}

func (t towers) Verify() error { return bundle.Verify(t.dir, t.m.Files, true, remedy) }

// Digest is a hash of the contents of all files except TextFile, as stated in bundle.json, of the positions of tensors
// in them, and of architecture and preprocessing: everything that features and gradients depend on. TextFile is for
// other programs, and another version of this program may write its nodes in another order.
func (t towers) Digest() string {
	m := t.m
	m.Name, m.Architecture, m.LogitScale, m.LogScale, m.LogitBias, m.Notes, m.Source = "", "", 0, 0, 0, nil, ""
	m.Origin = bundle.Origin{}
	m.Files = maps.Clone(m.Files)
	delete(m.Files, TextFile)
	text, err := json.Marshal(m)
	if err != nil { // a manifest can always be written as JSON
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (t towers) Report(r *bundle.Report) {
	for _, name := range t.m.fileNames() {
		r.Files = append(r.Files, bundle.FileReport{Name: name, Size: t.m.Files[name].Size})
	}
	r.Add(checkpoint.TokenEmbedding, t.m.Tokens.DType, t.m.Tokens.Shape, "")
	for name, p := range t.m.Weights {
		r.Add(name, p.DType, p.Shape, "")
	}
}
