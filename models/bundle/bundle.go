// Package bundle is a frozen CLIP as promptfed finds it on disk, and what the rest of the program needs of one:
// features of images, features of prompted texts, rows of the token embedding, a digest and a report.
//
// A folder is in one of several forms, each a package of its own that implements Towers and is registered with Use:
// models/bundle/converted is what promptfed convert makes of a checkpoint, models/bundle/exported holds ONNX files that
// other tools wrote. None of them imports ONNX Runtime or needs cgo.
package bundle

import (
	"fmt"
	"path/filepath"
	"sync"

	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// ManifestFile is what says what is in the folder of a bundle.
const ManifestFile = "bundle.json"

// Version is that of the form of bundle.json. Version 1 had other names, and version 2 may hold towers that were read
// wrongly.
const Version = 3

// Names of the inputs and outputs of graphs.
const (
	PixelsInput     = "pixels"
	ImageOutput     = "image"
	PatchesOutput   = "patches"
	TokensOutput    = "tokens"
	EmbeddingsInput = "embeddings"
	EOTInput        = "eot"
	TextOutput      = "text"
)

// Towers are both towers of a bundle, in the form that it has on disk. Features are not normalised: divide by the
// Euclidean norm before comparing. Implementations are safe for concurrent use and hold no file open.
type Towers interface {
	// Image adds the image tower to g: from normalised pixels [B,3,S,S] and prompts to the features of images [B,D] and
	// of their patches [B,M,D].
	Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error)
	// ImageModel is the image tower with the input PixelsInput and the outputs ImageOutput and, where there are patch
	// features, PatchesOutput.
	ImageModel() (*onnx.ModelProto, error)
	// Batch is the number of images that ImageModel takes at a time; 0 is any number.
	Batch() int
	// Patches is the number of patch features of an image.
	Patches() int
	// Tokens is the number of tokens of an image behind the last block; 0 where they cannot be reached.
	Tokens() int
	// TakesPromptTokens tells whether Image takes prompts of tokens, and not of pixels only.
	TakesPromptTokens() bool

	// ClassFeatures adds the text tower to g: for each prompt the features [C,D] of all classes.
	ClassFeatures(g *graph.Graph, classes *clip.Suffixes, prompts []clip.Prompt) ([]graph.Node, error)
	// TextFeatures adds the text tower to g: the features [N,D] of token sequences [SOS ... EOT].
	TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error)
	// Embed reads rows of the token embedding, as many numbers as the text tower is wide for each id.
	Embed(ids []int) ([]float32, error)

	// Digest is the SHA-256, in hex, over everything that features depend on. Name and logit scale do not count.
	Digest() string
	// Verify reads all files and compares them with what the bundle says of their contents. Opening does so for files
	// that the record in the user's cache does not know.
	Verify() error
	// Report adds what there is to tell of the towers and their files.
	Report(r *Report)
}

// Bundle is an open bundle. It holds no file open and is safe for concurrent use.
type Bundle struct {
	Name         string
	Architecture string // ViT-B/16, for example
	Source       string // format of the checkpoint
	Text         clip.TextArch
	Vision       clip.VisionArch
	LogitScale   float64 // what cosine similarities are multiplied with: exp of the stored parameter
	AssumedScale bool    // nothing told LogitScale and LogitBias
	LogitBias    float64 // what is added to that in front of a sigmoid, where the model was trained with one (SigLIP)
	Sigmoid      bool    // prompts are to be learned with a sigmoid loss: a wish of who opened it
	Registered   bool    // it is part of the program
	Preprocess   preprocess.Preprocess
	Notes        []string // what was assumed or done differently at conversion

	Dir        string              // the folder
	Vocabulary string              // the file in it, or "" for the first that tokenizer.Load knows
	Texts      tokenizer.Treatment // what is done to texts around that tokenizer
	TokenRows  int                 // rows of the token embedding
	Towers

	mu       sync.Mutex
	tokens   *tokenizer.Tokenizer
	suffixes map[string]*clip.Suffixes
}

// WeightsDir is the folder of the bundle, which the weights of its graphs are named relative to.
func (b *Bundle) WeightsDir() string { return b.Dir }

// Image is Towers.Image.
func (b *Bundle) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error) {
	image, patches, err = b.Towers.Image(g, pixels, p)
	if err == nil {
		err = g.Err()
	}
	return image, patches, b.wrap(err)
}

// Pixels adds the input PixelsInput to g: so many images, 0 for any number, of three planes of size by size pixels.
func Pixels(g *graph.Graph, images, size int) graph.Node {
	batch := graph.Sym("B")
	if images > 0 {
		batch = graph.D(images)
	}
	return g.Input(PixelsInput, graph.Float, graph.Shape{batch, graph.D(3), graph.D(size), graph.D(size)})
}

// TokensModel is the image tower with the input PixelsInput and the output TokensOutput [B,Tokens,Vision.Width], what
// is behind its last block.
func (b *Bundle) TokensModel() (*onnx.ModelProto, error) {
	g := graph.New()
	x, _, err := b.Image(g, Pixels(g, b.Batch(), b.Preprocess.Size), clip.VisionPrompts{Last: true})
	if err != nil {
		return nil, err
	}
	return graph.Model(graph.Output{Name: TokensOutput, Node: x})
}

// Embed is Towers.Embed.
func (b *Bundle) Embed(ids []int) ([]float32, error) {
	rows, err := b.Towers.Embed(ids)
	return rows, b.wrap(err)
}

// wrap names the bundle in an error.
func (b *Bundle) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("bundle %s: %w", b.Name, err)
}

// Tokenizer reads the vocabulary, once, and gives texts their treatment.
func (b *Bundle) Tokenizer() (*tokenizer.Tokenizer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		t, err := tokenizer.Load(filepath.Join(b.Dir, filepath.FromSlash(b.Vocabulary)))
		if err == nil {
			t, err = t.With(b.Texts)
		}
		if err != nil {
			return nil, b.wrap(err)
		}
		if t.VocabSize() > b.TokenRows {
			return nil, b.wrap(fmt.Errorf("%s has %d tokens, the token embedding %d rows: they do not belong together",
				b.Vocabulary, t.VocabSize(), b.TokenRows))
		}
		b.tokens = t
	}
	return b.tokens, nil
}
