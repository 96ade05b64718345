package converted

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Names of the files of every bundle.
const (
	ImageFile     = "image.onnx"
	TextFile      = "text.onnx"
	tokenizerFile = "tokenizer.json"
	weightsFile   = "weights.safetensors"
)

// Format returns the format of this package (bundle.RegisterFormat). A bundle.json that lists weights, or is not JSON,
// has this format. With run, gradient files are compared with the towers.
func Format(run bundle.Runner) bundle.Format {
	return bundle.Format{NameOf: nameOf, Inspect: inspect,
		Open: func(s bundle.Spec) (*bundle.Bundle, error) { return open(s.Folder, run) }}
}

func nameOf(dir string) (string, bool) {
	data, err := bundle.ReadManifest(dir)
	if err != nil || !bundle.ListsWeights(data) {
		return "", false
	}

	m, err := parseManifest(data)
	if err != nil {
		return "", true
	}

	return m.Name, true
}

func open(dir string, run bundle.Runner) (*bundle.Bundle, error) {
	manifest, err := readManifest(dir)
	if err != nil {
		return nil, err
	}

	if err := bundle.Verify(dir, manifest.Files, false, remedy); err != nil {
		return nil, err
	}

	b, err := newBundle(dir, manifest)
	if err == nil && run != nil {
		err = b.Towers.(towers).prove(run)
	}

	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", manifest.Name, err)
	}

	return b, nil
}

// remedy is the next step if a file differs from bundle.json.
const remedy = "convert the checkpoint again"

func newBundle(dir string, manifest Manifest) (*bundle.Bundle, error) {
	towers := towers{dir: dir, manifest: manifest}
	var err error
	if towers.imageBox, err = towers.box(bundle.ImageGradientFile, bundle.ImageOutput, bundle.PixelsInput); err != nil {
		return nil, err
	}

	if towers.textBox, err = towers.box(bundle.TextGradientFile, bundle.TextOutput, bundle.EmbeddingsInput,
		bundle.EOTInput); err != nil {
		return nil, err
	}

	text, vision := manifest.Text, manifest.Vision // of a box, what can be reached
	if towers.textBox != nil {
		text = clip.TextArch{Width: text.Width, Context: text.Context, EmbedDim: text.EmbedDim, Pad: text.Pad}
	}

	if towers.imageBox != nil {
		vision = clip.VisionArch{Image: vision.Image, EmbedDim: vision.EmbedDim}
	}

	return &bundle.Bundle{Name: manifest.Name, Architecture: manifest.Architecture, Source: manifest.Source, Text: text,
		Vision:     vision,
		LogitScale: manifest.LogitScale, LogitBias: manifest.LogitBias, Preprocess: manifest.Preprocess,
		Notes:  manifest.Notes,
		Origin: manifest.Origin, Dir: dir, Vocabulary: manifest.TokenizerFile, Texts: manifest.Texts,
		TokenRows: manifest.Tokens.Shape[0], Towers: towers}, nil
}

// towers implements bundle.Towers.
type towers struct {
	dir      string
	manifest Manifest

	imageBox, textBox *bundle.Box // nil without a gradient file
}

func (t towers) text() clip.Text {
	tower := clip.Text{TextArch: t.manifest.Text}
	if t.textBox != nil {
		tower.Box = func(emb, read graph.Node) graph.Node {
			return t.textBox.Features(map[string]graph.Node{bundle.EmbeddingsInput: emb, bundle.EOTInput: read})
		}
	}
	return tower
}

func (t towers) vision() clip.Vision {
	tower := clip.Vision{VisionArch: t.manifest.Vision}
	if t.imageBox != nil {
		tower.Box = func(pixels graph.Node) graph.Node {
			return t.imageBox.Features(map[string]graph.Node{bundle.PixelsInput: pixels})
		}
	}
	return tower
}

// box opens a gradient file; nil if there is none.
func (t towers) box(name, features, input string, others ...string) (*bundle.Box, error) {
	b, err := bundle.OpenBox(t.dir, name, features, input, others...)
	if _, listed := t.manifest.Files[name]; b != nil && !listed {
		return nil, fmt.Errorf("%s is in the folder, but %s does not list it: remove it, or convert with --gradients",
			name, bundle.ManifestFile)
	}
	return b, err
}

// prove compares the features of gradient files with those of the towers, for noise.
func (t towers) prove(run bundle.Runner) error {
	weights := table(t.manifest.Weights)
	if t.imageBox != nil {
		size := t.manifest.Vision.Image
		pixels := bundle.AddPixelsInput(graph.New(), 2, size)
		got, _ := t.vision().Features(pixels.Graph(), weights, pixels)
		want, _ := clip.Vision{VisionArch: t.manifest.Vision}.Features(pixels.Graph(), weights, pixels)
		f := bundle.TwoForms{Got: got, Want: want, In: tensor.Map{pixels.Name(): bundle.Noise(2, 3, size, size)}}
		if err := t.imageBox.Prove(t.dir, run, f, pixels.Name()); err != nil {
			return err
		}
	}

	if t.textBox == nil {
		return nil
	}

	a := t.manifest.Text
	emb := graph.New().Input(bundle.EmbeddingsInput, graph.Float, graph.Static(2, a.Context, a.Width))
	read := emb.Graph().Ints(a.Context/2, a.Context-1)
	f := bundle.TwoForms{Got: t.text().Plain(weights, emb, read), Want: clip.Text{TextArch: a}.Plain(weights, emb,
		read),
		In: tensor.Map{emb.Name(): bundle.Noise(2, a.Context, a.Width)}}
	return t.textBox.Prove(t.dir, run, f, emb.Name())
}

// Weights returns the tensors of both towers of a converted bundle, as constants that stay in their files, with paths
// relative to the bundle's folder. It returns false for other bundles.
func Weights(b *bundle.Bundle) (clip.Weights, bool) {
	t, ok := b.Towers.(towers)
	return table(t.manifest.Weights), ok
}

func (t towers) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error) {
	image, patches = t.vision().PromptedFeatures(g, table(t.manifest.Weights), pixels, p)
	return image, patches, nil
}

func (t towers) ImageModel() (*onnx.ModelProto, error) {
	return onnx.ReadFile(filepath.Join(t.dir, ImageFile))
}

func (towers) Batch() int { return 0 }

func (t towers) Patches() int { return t.manifest.Vision.Patches() }

func (t towers) Tokens() int {
	if t.imageBox != nil {
		return 0
	}
	return t.manifest.Vision.Tokens()
}

func (t towers) TakesPromptTokens() bool { return t.imageBox == nil }

// ClassFeatures computes all prompts in one pass, in the cheap exact form if the class name is at the end of the
// prompt, and else in the plain form.
func (t towers) ClassFeatures(g *graph.Graph, s *clip.Suffixes, prompts []clip.Prompt) ([]graph.Node, error) {
	return t.text().Prompts(g, table(t.manifest.Weights), s, prompts), nil
}

func (t towers) TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error) {
	return t.text().Sequences(g, table(t.manifest.Weights), ids, t.Embed), nil
}

func (t towers) Embed(ids []int) ([]float32, error) {
	p := t.manifest.Tokens
	f, err := os.Open(filepath.Join(t.dir, p.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bundle.EmbeddingRows(f, p.Offset, p.DType, p.Shape[0], p.Shape[1], ids)
}

func (t towers) Verify() error { return bundle.Verify(t.dir, t.manifest.Files, true, remedy) }

// Digest is a hash of the contents of all files except TextFile, as stated in bundle.json, of the positions of tensors
// in them, and of architecture and preprocessing: everything that features and gradients depend on. TextFile is for
// other programs, and another version of this program may write its nodes in another order.
func (t towers) Digest() string {
	m := t.manifest
	m.Name, m.Architecture, m.LogitScale, m.LogScale, m.LogitBias, m.Notes, m.Source = "", "", 0, 0, 0, nil, ""
	m.Origin = bundle.Origin{}
	m.Files = maps.Clone(m.Files)
	delete(m.Files, TextFile)
	return bundle.DigestOf(m)
}

func (t towers) Report(r *bundle.Report) {
	for _, name := range t.manifest.fileNames() {
		r.Files = append(r.Files, bundle.FileReport{Name: name, Size: t.manifest.Files[name].Size})
	}
	r.Add(checkpoint.TokenEmbedding, t.manifest.Tokens.DType, t.manifest.Tokens.Shape, "")
	for name, p := range t.manifest.Weights {
		r.Add(name, p.DType, p.Shape, "")
	}
}
