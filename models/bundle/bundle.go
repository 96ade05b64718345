// Package bundle is a frozen CLIP as promptfed keeps it on disk: a folder that any program with ONNX Runtime can use.
//
//	bundle.json     what is in the folder (Manifest)
//	image.onnx      pixels [B,3,S,S] -> image [B,D], patches [B,M,D]
//	text.onnx       embeddings [C,L,w], eot [C] (int64) -> text [C,D]
//	tokenizer.json  the vocabulary, in Hugging Face's form
//	weights         one or more .safetensors files that the two graphs and bundle.json point into
//
// Features are not normalised: divide by the Euclidean norm before comparing. Pixels are normalised as bundle.json
// says. embeddings are rows of the token embedding, without positions, of whole sequences [SOS ... EOT] filled up to
// the context length L with anything; eot is the index that the features are read at.
//
// Weights stay where they are when they can: float32 .safetensors files are hard links to the checkpoint's own (copies
// across file systems), so they must not be changed in place afterwards; sizes are checked at Open, contents by Verify.
// Everything else is converted once to float32, since ONNX Runtime would otherwise hold such a copy in every session.
//
// The package does not import ONNX Runtime and needs no cgo.
package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/onnx"
)

// Names of the files that every bundle has.
const (
	ManifestFile  = "bundle.json"
	ImageFile     = "image.onnx"
	TextFile      = "text.onnx"
	tokenizerFile = "tokenizer.json"
	weightsFile   = "weights.safetensors"
)

// Names of the graphs' inputs and outputs.
const (
	PixelsInput     = "pixels"
	ImageOutput     = "image"
	PatchesOutput   = "patches"
	EmbeddingsInput = "embeddings"
	EOTInput        = "eot"
	TextOutput      = "text"
)

// Bundle is an open bundle. It holds no file open and is safe for concurrent use.
type Bundle struct {
	Name         string
	Architecture string // ViT-B/16, for example
	Text         clip.TextArch
	Vision       clip.VisionArch
	LogitScale   float64 // what cosine similarities are multiplied with: exp of the stored parameter
	Preprocess   preprocess.Preprocess
	Notes        []string // what was assumed or done differently at conversion

	dir      string
	manifest Manifest
	drop     *dropIn // of towers that another tool exported; nil otherwise

	mu       sync.Mutex
	tokens   *tokenizer.Tokenizer
	suffixes map[string]*clip.Suffixes
}

// Open reads the bundle in a folder. Everything that bundle.json says is checked but the contents of the files, of
// which only the sizes are (see Verify).
//
// A bundle.json without weights stands for towers that another tool exported (docs/dropin.md).
func Open(dir string) (*Bundle, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	data, err := readManifestFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, err
	}
	if isHandWritten(data) {
		return openDropIn(abs, data)
	}
	m, err := parseManifestFile(filepath.Join(dir, ManifestFile), data)
	if err != nil {
		return nil, err
	}
	if err := m.checkFiles(abs); err != nil {
		return nil, err
	}
	return newBundle(abs, m), nil
}

func newBundle(dir string, m Manifest) *Bundle {
	return &Bundle{Name: m.Name, Architecture: m.Architecture, Text: m.Text, Vision: m.Vision, LogitScale: m.LogitScale,
		Preprocess: m.Preprocess, Notes: m.Notes, dir: dir, manifest: m, suffixes: map[string]*clip.Suffixes{}}
}

// Manifest is the content of bundle.json. It must not be changed.
func (b *Bundle) Manifest() Manifest { return b.manifest }

// WeightsDir is the folder of the bundle, which the weights of its graphs are named relative to.
func (b *Bundle) WeightsDir() string { return b.dir }

// Patches is the number of patch features of an image.
func (b *Bundle) Patches() int {
	if b.drop != nil {
		return b.drop.image.count
	}
	return b.Vision.Patches()
}

// Batch is the number of images that ImageModel takes at a time; 0 is any number.
func (b *Bundle) Batch() int {
	if b.drop != nil {
		return b.drop.image.batch
	}
	return 0
}

// ImageModel is the image tower with the input PixelsInput and the outputs ImageOutput and, where there are patch
// features, PatchesOutput.
func (b *Bundle) ImageModel() (*onnx.ModelProto, error) {
	if b.drop != nil {
		return b.drop.image.model()
	}
	return onnx.ReadFile(filepath.Join(b.dir, ImageFile))
}

// Tokenizer reads the vocabulary, once.
func (b *Bundle) Tokenizer() (*tokenizer.Tokenizer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		t, err := tokenizer.Load(filepath.Join(b.dir, b.manifest.TokenizerFile))
		if err != nil {
			return nil, fmt.Errorf("bundle %s: %w", b.Name, err)
		}
		if rows := b.manifest.Tokens.Shape[0]; t.VocabSize() > rows {
			return nil, fmt.Errorf("bundle %s: %s has %d tokens, the token embedding %d rows: they do not belong "+
				"together",
				b.Name, b.manifest.TokenizerFile, t.VocabSize(), rows)
		}
		b.tokens = t
	}
	return b.tokens, nil
}

// Verify compares the SHA-256 of every file with bundle.json.
func (b *Bundle) Verify() error {
	if b.drop != nil {
		return b.drop.verify(b.dir)
	}
	for _, name := range b.manifest.fileNames() {
		f, err := fileOf(filepath.Join(b.dir, name))
		if err != nil {
			return err
		}
		if want := b.manifest.Files[name]; f != want {
			return fmt.Errorf("%s: SHA-256 %.12s of %d bytes, %s says %.12s of %d: the file was changed or damaged; "+
				"convert the checkpoint again",
				filepath.Join(b.dir, name), f.SHA256, f.Size, ManifestFile, want.SHA256, want.Size)
		}
	}
	return nil
}

// Digest is the SHA-256, in hex, over everything that features depend on: the contents of all files as bundle.json
// states them, where the tensors lie in them, architecture and preprocessing. Name and logit scale do not count.
func (b *Bundle) Digest() string {
	if b.drop != nil {
		return b.drop.digest()
	}
	m := b.manifest
	m.Name, m.Architecture, m.LogitScale, m.LogScale, m.Notes, m.Source = "", "", 0, 0, nil, ""
	text, err := json.Marshal(m)
	if err != nil { // a manifest was read from JSON or written as such
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
