package exported

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"promptfed/models/bundle"
	"promptfed/models/tokenizer"
)

// config is the bundle.json of towers that other tools exported (docs/dropin.md). All keys are optional: missing values
// are derived from the graphs, and given values are checked against them.
type config struct {
	Version       int             `json:"bundle,omitempty"`
	Name          string          `json:"name,omitempty"` // empty: the name of the folder
	Architecture  string          `json:"architecture,omitempty"`
	Source        string          `json:"source,omitempty"`
	TextWidth     int             `json:"text_width,omitempty"`
	EmbedDim      int             `json:"embed_dim,omitempty"`
	ImageSize     int             `json:"image_size,omitempty"`
	Context       int             `json:"context_length,omitempty"`
	LogitScale    float64         `json:"logit_scale,omitempty"`
	LogitBias     float64         `json:"logit_bias,omitempty"`
	LogScale      *float64        `json:"logit_scale_log,omitempty"`
	Preprocess    json.RawMessage `json:"preprocess,omitempty"`
	TokenizerFile string          `json:"tokenizer,omitempty"`
	// treatment of texts before and after the tokenizer; if missing, that of an OpenCLIP configuration
	Texts *tokenizer.TextCleaning `json:"texts,omitempty"`
	Model string                  `json:"model,omitempty"` // one ONNX file with both towers
	// which of a layout's files are used: fp16, quantized, ...
	Variant string                 `json:"variant,omitempty"`
	Image   imageConfig            `json:"image,omitzero"`
	Text    textConfig             `json:"text,omitzero"`
	Tokens  *tokenTable            `json:"token_embedding,omitempty"`
	Files   map[string]bundle.File `json:"files,omitempty"`
	Notes   []string               `json:"notes,omitempty"`
}

// imageConfig names the file, the inputs and the outputs of the image tower.
type imageConfig struct {
	File    string `json:"file,omitempty"`
	Input   string `json:"input,omitempty"`   // pixels [B,3,S,S]
	Output  string `json:"output,omitempty"`  // features [B,D]
	Patches string `json:"patches,omitempty"` // features of patches [B,M,D] in the same space, if there are any
}

// textConfig names the file, the inputs and the output of the text tower.
type textConfig struct {
	File       string `json:"file,omitempty"`
	Embeddings string `json:"embeddings,omitempty"`     // [C,L,w]
	IDs        string `json:"ids,omitempty"`            // [C,L]
	EOT        string `json:"eot,omitempty"`            // [C]
	Mask       string `json:"attention_mask,omitempty"` // [C,L]
	Positions  string `json:"position_ids,omitempty"`   // [C,L]
	Output     string `json:"output,omitempty"`         // features [C,D]
	Causal     *bool  `json:"causal,omitempty"`         // whether tokens after EOT have no influence
}

// readConfig reads the bundle.json of a folder, if it is of exported models, that is, without weights.
func readConfig(dir string) (config config, ok bool, err error) {
	data, err := bundle.ReadManifest(dir)
	if err != nil {
		return config, false, nil
	}

	if bundle.ListsWeights(data) {
		return config, false, nil
	}

	if config, err = parseConfig(data); err == nil {
		config.Name = cmp.Or(config.Name, filepath.Base(dir))
		err = bundle.CheckName(config.Name)
	}

	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Join(dir, bundle.ManifestFile), err)
	}

	return config, true, err
}

func parseConfig(data []byte) (config, error) {
	var config config
	if err := bundle.DecodeManifest(data, &config); err != nil {
		return config, fmt.Errorf("%w; without weights the keys are name, architecture, "+
			"source, text_width, embed_dim, image_size, context_length, logit_scale, logit_bias, logit_scale_log, "+
			"preprocess, tokenizer, texts {clean}, model, variant, image {file, input, output, patches}, text {file, "+
			"embeddings, ids, eot, attention_mask, position_ids, output, causal}, token_embedding {file, tensor}, "+
			"files, notes", err)
	}

	if config.Version < 0 || config.Version > bundle.GradientVersion {
		return config, fmt.Errorf("bundle version %d, this program reads versions up to %d", config.Version,
			bundle.GradientVersion)
	}

	for _, n := range []int{config.TextWidth, config.EmbedDim, config.ImageSize, config.Context} {
		if n < 0 || n > bundle.MaxExtent {
			return config, fmt.Errorf("a size of %d must be from 1 to %d, or left out", n, bundle.MaxExtent)
		}
	}

	for _, f := range []string{config.Model, config.Image.File, config.Text.File} {
		if f != "" && (!filepath.IsLocal(filepath.FromSlash(f)) || strings.ContainsAny(f, "\\\x00")) {
			return config, fmt.Errorf("%q is not the path of a file inside the bundle", f)
		}
	}

	return config, nil
}
