package checkpoint

import (
	"fmt"
	"slices"

	"promptfed/models/clip"
	"promptfed/runtime/nn"
)

// Activations of the feed-forward layers: x*sigmoid(1.702 x) in OpenAI's weights, x*Phi(x) in most others.
const (
	QuickGELU = nn.QuickGELU
	GELU      = nn.GELU
	GELUTanh  = nn.GELUTanh // gelu_pytorch_tanh in transformers
)

var activations = []string{QuickGELU, GELU, GELUTanh}

// Arch is the architecture of a CLIP (Radford et al., Learning Transferable Visual Models From Natural Language
// Supervision, 2021, section 2.4). It follows from the weights, and from the configuration where weights do not
// determine it (heads, activation, normalisation). The tokenizer determines Text.Pad.
type Arch struct {
	Text   clip.TextArch
	Vision clip.VisionArch
	Vocab  int
	// EndToken is the id at which the library reads features of texts; LargestToken means the largest id of a text.
	EndToken int
	PadToken int   // the id that the library masks
	Texts    Texts // treatment of texts before and after OpenCLIP's tokenizer
	RoBERTa  bool  // the text tower is a RoBERTa, not a BERT

	LogitBias  float64  // added to scaled similarities before a sigmoid
	LogitScale float64  // factor of cosine similarities: exp of the stored parameter
	Warnings   []string // assumptions about what no file states
}

// Values of EndToken and PadToken that are not ids.
const (
	AnyToken     = -1 - iota // nothing depends on the id
	LargestToken             // the largest id of a text
)

// tower is what both architectures have: sizes that follow from the weights, and properties that settings sets.
type tower struct {
	width, layers, units int
	heads                *int
	activation           *string
	epsilon              *float64
}

func (a *Arch) textTower() tower {
	t := &a.Text
	return tower{t.Width, t.Layers, t.Units(), &t.Heads, &t.Activation, &t.Eps}
}

func (a *Arch) imageTower() tower {
	v := &a.Vision
	return tower{v.Width, v.Layers, v.Units(), &v.Heads, &v.Activation, &v.Eps}
}

// set sets the properties that do not follow from the weights.
func (t tower) set(heads int, activation string, epsilon float64) {
	*t.heads, *t.activation, *t.epsilon = heads, activation, epsilon
}

// Name returns the usual name, such as ViT-B/16 or RN50, or else the sizes of the image tower.
func (a Arch) Name() string {
	arch := a.Vision
	if arch.ResNet() {
		for name, r := range map[string]clip.VisionArch{"RN50": clip.RN50, "RN101": clip.RN101,
			"RN50x4":  {Stages: []int{4, 6, 10, 6}, Width: 2560},
			"RN50x16": {Stages: []int{6, 8, 18, 8}, Width: 3072},
			"RN50x64": {Stages: []int{3, 15, 36, 10}, Width: 4096}} {
			if slices.Equal(arch.Stages, r.Stages) && arch.Width == r.Width {
				return name
			}
		}
		return fmt.Sprintf("ResNet, stages of %v blocks, width %d", arch.Stages, arch.Width)
	}

	for letter, size := range map[string][2]int{"S": {12, 384}, "B": {12, 768}, "L": {24, 1024}, "H": {32, 1280},
		"g": {40, 1408}, "bigG": {48, 1664}} {
		if size == [2]int{arch.Layers, arch.Width} {
			return fmt.Sprintf("ViT-%s/%d", letter, arch.Patch)
		}
	}

	return fmt.Sprintf("ViT, %d layers, width %d, patch size %d", arch.Layers, arch.Width, arch.Patch)
}
