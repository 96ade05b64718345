package converted

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/atomicfile"
)

// Manifest is the content of bundle.json.
type Manifest struct {
	Version      int    `json:"bundle"`         // version of the format: bundle.VersionOf
	Name         string `json:"name"`           // name of the backbone in configurations
	Architecture string `json:"architecture"`   // such as ViT-B/16; informative
	Source       string `json:"source"`         // format of the checkpoint; informative
	TextWidth    int    `json:"text_width"`     // w, width of the text tower's tokens and of prompts
	EmbedDim     int    `json:"embed_dim"`      // D, of the features of images and texts
	ImageSize    int    `json:"image_size"`     // S, pixels on a side
	Context      int    `json:"context_length"` // L, tokens of a text, including SOS and EOT
	// exp of the trained parameter: 100 in OpenAI's models
	LogitScale    float64                `json:"logit_scale"`
	LogScale      float64                `json:"logit_scale_log"`      // the trained parameter, log of logit_scale
	LogitBias     float64                `json:"logit_bias,omitempty"` // added to scaled similarities before a sigmoid
	Preprocess    preprocess.Preprocess  `json:"preprocess"`
	TokenizerFile string                 `json:"tokenizer"`
	Texts         tokenizer.TextCleaning `json:"texts,omitzero"` // treatment of texts before and after the tokenizer
	Text          clip.TextArch          `json:"text"`
	Vision        clip.VisionArch        `json:"vision"`
	Tokens        TensorLocation         `json:"token_embedding"` // [vocabulary,w]
	// of both towers, with the names of clip.Weights
	Weights map[string]TensorLocation `json:"weights"`
	Files   map[string]bundle.File    `json:"files"` // all files of the folder except bundle.json
	Notes   []string                  `json:"notes,omitempty"`
	Origin  bundle.Origin             `json:"origin,omitzero"`
}

// TensorLocation is the location of a tensor's elements, row-major and little-endian, in a file of the bundle.
type TensorLocation struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"` // bytes
	Length int64  `json:"length"` // bytes
	DType  string `json:"dtype"`  // F32
	Shape  []int  `json:"shape"`
}

// readManifest reads the bundle.json of a folder.
func readManifest(dir string) (Manifest, error) {
	data, err := bundle.ReadManifest(dir)
	if err != nil {
		return Manifest{}, err
	}

	m, err := parseManifest(data)
	if err != nil {
		return Manifest{}, fmt.Errorf("%s: %w", filepath.Join(dir, bundle.ManifestFile), err)
	}

	return m, nil
}

// parseManifest decodes bundle.json and checks everything that does not depend on the other files.
func parseManifest(data []byte) (Manifest, error) {
	var manifest Manifest
	if err := json.Unmarshal(data, &struct {
		Version *int `json:"bundle"`
	}{&manifest.Version}); err == nil && manifest.Version != bundle.Version &&
		manifest.Version != bundle.GradientVersion {
		return manifest, fmt.Errorf("bundle version %d, this program reads versions %d and, with gradient files, %d: "+
			"convert the checkpoint again", manifest.Version, bundle.Version, bundle.GradientVersion)
	}

	if err := bundle.DecodeManifest(data, &manifest); err != nil {
		return manifest, err
	}

	return manifest, manifest.check()
}

func (m Manifest) check() error {
	if err := bundle.CheckName(m.Name); err != nil {
		return err
	}

	if err := m.checkTowers(); err != nil {
		return err
	}

	if err := m.Preprocess.Validate(); err != nil {
		return err
	}

	if err := m.Texts.Check(); err != nil {
		return fmt.Errorf("texts: %w", err)
	}

	if err := clip.CheckScale(m.LogitScale, m.LogitBias); err != nil {
		return err
	}

	switch {
	case m.Preprocess.Size != m.Vision.Image:
		return fmt.Errorf("preprocessing makes images of %d pixels, the image tower takes %d", m.Preprocess.Size,
			m.Vision.Image)
	case math.Abs(math.Log(m.LogitScale)-m.LogScale) > 1e-4:
		return fmt.Errorf("logit_scale %g is not the exponential of logit_scale_log %g", m.LogitScale, m.LogScale)
	}

	for name, f := range m.Files {
		if name == bundle.ManifestFile || bundle.CheckName(name) != nil {
			return fmt.Errorf("files: %q is not the name of a file in the bundle", name)
		}
		if f.Size < 0 || len(f.SHA256) != 64 {
			return fmt.Errorf("files: %s has size %d and SHA-256 %q", name, f.Size, f.SHA256)
		}
	}

	if v := bundle.VersionOf(m.Files); m.Version != v {
		return fmt.Errorf("bundle version %d, but with these files it is %d", m.Version, v)
	}

	for _, name := range []string{ImageFile, TextFile, m.TokenizerFile} {
		if _, ok := m.Files[name]; !ok {
			return fmt.Errorf("files: %q is not listed", name)
		}
	}

	return m.checkWeights()
}

func (m Manifest) checkTowers() error {
	arch, vision := m.Text, m.Vision
	for _, n := range []int{arch.Width, arch.Layers, arch.Heads, arch.MLP, arch.Hidden, arch.Context, arch.EmbedDim,
		vision.Width, vision.Layers, vision.Heads, vision.MLP, vision.Patch, vision.Image, vision.EmbedDim} {
		if n > bundle.MaxExtent {
			return fmt.Errorf("a size of %d is above the limit of %d", n, bundle.MaxExtent)
		}
	}

	if err := arch.Check(); err != nil {
		return err
	}

	if err := vision.Check(); err != nil {
		return err
	}

	for _, s := range []struct {
		what      string
		have, got int
	}{{"text_width", m.TextWidth, arch.Width}, {"embed_dim", m.EmbedDim, arch.EmbedDim}, {"embed_dim", m.EmbedDim,
		vision.EmbedDim},
		{"image_size", m.ImageSize, vision.Image}, {"context_length", m.Context, arch.Context}} {
		if s.have != s.got {
			return fmt.Errorf("%s is %d, but the towers say %d", s.what, s.have, s.got)
		}
	}

	return nil
}

func (m Manifest) fileNames() []string { return slices.Sorted(maps.Keys(m.Files)) }

func (m Manifest) write(path string) error {
	if err := m.check(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	return atomicfile.Write(path, atomicfile.JSON(m, " "))
}
