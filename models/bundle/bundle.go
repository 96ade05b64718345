package bundle

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// ManifestFile describes the content of a bundle's folder.
const ManifestFile = "bundle.json"

// Version is the version of bundle.json. Version 1 has other names, and bundles of version 2 may hold incorrectly read
// towers.
const Version = 3

// GradientVersion is the version of a bundle.json that lists gradient files; programs without them would ignore these.
const GradientVersion = 4

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

// Towers are the two towers of a bundle, in their format on disk. Features are not normalised: divide by the Euclidean
// norm before a comparison. Implementations are safe for concurrent use and keep no file open.
type Towers interface {
	// Image adds the image tower to g: it maps normalised pixels [B,3,S,S] and prompts to the features of images [B,D]
	// and of their patches [B,M,D].
	Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error)
	// ImageModel returns the image tower with the input PixelsInput and the outputs ImageOutput and, if there are patch
	// features, PatchesOutput.
	ImageModel() (*onnx.ModelProto, error)
	// Batch returns the number of images per run of ImageModel; 0 means any number.
	Batch() int
	// Patches returns the number of patch features of an image.
	Patches() int
	// Tokens returns the number of tokens of an image after the last block; 0 if they are not accessible.
	Tokens() int
	// TakesPromptTokens reports whether Image may accept prompt tokens, and not only prompts of pixels. An exported
	// tower whose blocks were found is compared at the first ones; Image returns ErrNoPromptTokens if it accepts none.
	TakesPromptTokens() bool

	// ClassFeatures adds the text tower to g and returns for each prompt the features [C,D] of all classes.
	ClassFeatures(g *graph.Graph, classes *clip.Suffixes, prompts []clip.Prompt) ([]graph.Node, error)
	// TextFeatures adds the text tower to g and returns the features [N,D] of token sequences [SOS ... EOT].
	TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error)
	// Embed reads rows of the token embedding, as many numbers for each id as the width of the text tower.
	Embed(ids []int) ([]float32, error)

	// Digest returns the SHA-256, in hex, of everything that features depend on. Name and logit scale are excluded.
	Digest() string
	// Verify reads all files and compares them with the hashes in the bundle. Opening a bundle does the same for files
	// that the record in the user's cache does not list.
	Verify() error
	// Report adds the description of the towers and their files.
	Report(r *Report)
}

// ErrNoPromptTokens means that an image tower accepts prompts of pixels alone.
var ErrNoPromptTokens = errors.New("this exported image tower supports only prompts of pixels, because its " +
	"blocks cannot be reached (promptfed inspect says why); convert the checkpoint for prompt tokens")

// Bundle is an open bundle. It keeps no file open and is safe for concurrent use.
type Bundle struct {
	Name         string
	Architecture string // ViT-B/16, for example
	Source       string // format of the checkpoint
	Text         clip.TextArch
	Vision       clip.VisionArch
	LogitScale   float64 // factor of cosine similarities: exp of the stored parameter
	AssumedScale bool    // no file states LogitScale and LogitBias
	LogitBias    float64 // added to scaled similarities before a sigmoid (SigLIP)
	Sigmoid      bool    // whoever opened the bundle wants prompts to be trained with a sigmoid loss
	Registered   bool    // it is part of the program
	RoundsImage  bool    // the image tower rounds activations and has no gradient file, so prompts cannot train in it
	Preprocess   preprocess.Preprocess
	Notes        []string // assumptions and changes of the conversion
	Origin       Origin   // empty if it was not fetched by this program

	Dir        string                 // the folder
	Vocabulary string                 // the file in Dir, or "" for the first that tokenizer.Load finds
	Texts      tokenizer.TextCleaning // how texts are treated before and after that tokenizer
	TokenRows  int                    // rows of the token embedding
	Towers

	mu       sync.Mutex
	tokens   *tokenizer.Tokenizer
	suffixes map[string]*clip.Suffixes
}

// WeightsDir returns the folder of the bundle, to which the weight files of its graphs are relative.
func (b *Bundle) WeightsDir() string { return b.Dir }

// Image calls Towers.Image.
func (b *Bundle) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error) {
	image, patches, err = b.Towers.Image(g, pixels, p)
	if err == nil {
		err = g.Err()
	}
	return image, patches, b.wrap(err)
}

// AddPixelsInput adds the input PixelsInput to g: images (0 means any number) of three planes of size by size pixels.
func AddPixelsInput(g *graph.Graph, images, size int) graph.Node {
	batch := graph.Sym("B")
	if images > 0 {
		batch = graph.StaticDim(images)
	}
	return g.Input(PixelsInput, graph.Float, graph.Shape{batch, graph.StaticDim(3), graph.StaticDim(size),
		graph.StaticDim(size)})
}

// TokensModel returns the image tower with the input PixelsInput and the output TokensOutput [B,Tokens,Vision.Width],
// the tokens after its last block.
func (b *Bundle) TokensModel() (*onnx.ModelProto, error) {
	g := graph.New()
	x, _, err := b.Image(g, AddPixelsInput(g, b.Batch(), b.Preprocess.Size), clip.VisionPrompts{LastTokens: true})
	if err != nil {
		return nil, err
	}
	return graph.Model(graph.Output{Name: TokensOutput, Node: x})
}

// Embed calls Towers.Embed.
func (b *Bundle) Embed(ids []int) ([]float32, error) {
	rows, err := b.Towers.Embed(ids)
	return rows, b.wrap(err)
}

// wrap adds the name of the bundle to an error.
func (b *Bundle) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("bundle %s: %w", b.Name, err)
}

// Tokenizer returns the tokenizer with the treatment of texts; it reads the vocabulary once.
func (b *Bundle) Tokenizer() (*tokenizer.Tokenizer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		tokens, err := tokenizer.Load(filepath.Join(b.Dir, filepath.FromSlash(b.Vocabulary)))
		if err == nil {
			tokens, err = tokens.WithCleaning(b.Texts)
		}
		if err != nil {
			return nil, b.wrap(err)
		}
		if tokens.VocabSize() > b.TokenRows {
			return nil, b.wrap(fmt.Errorf("%s has %d tokens, the token embedding %d rows: they do not belong together",
				b.Vocabulary, tokens.VocabSize(), b.TokenRows))
		}
		b.tokens = tokens
	}

	return b.tokens, nil
}
