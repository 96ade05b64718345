package checkpoint

import (
	"fmt"
	"slices"
)

// Kinds of image tower.
const (
	ViT    = "vit"
	ResNet = "resnet"
)

// Activations of the feed-forward layers: x*sigmoid(1.702 x) in OpenAI's weights, x*Phi(x) in most others.
const (
	QuickGELU = "quick_gelu"
	GELU      = "gelu"
	GELUTanh  = "gelu_tanh" // gelu_pytorch_tanh in transformers
)

var activations = []string{QuickGELU, GELU, GELUTanh}

// Transformer is the size of one tower. Width/Heads is the width of a head; MLP is the width of the feed-forward
// layers.
type Transformer struct {
	Width, Layers, Heads, MLP int
	Activation                string  // QuickGELU, GELU or GELUTanh
	Epsilon                   float64 // of the layer norms
}

// Arch is the architecture of a CLIP (Radford et al., Learning Transferable Visual Models From Natural Language
// Supervision, 2021, section 2.4). It follows from the weights, and from the configuration where weights do not
// determine it (heads, activation, normalisation).
//
// For a ResNet, Vision describes the attention pooling: Width 32 times the stem's, heads of width 64, no layers, no
// activation.
type Arch struct {
	Kind      string // ViT or ResNet
	ImageSize int    // pixels on a side
	EmbedDim  int    // dimension of image and text features
	Vision    Transformer
	Patch     int   // pixels on a side of a patch; 32, the stride, for a ResNet
	Stages    []int // ResNet: blocks of the four stages; nil for a ViT
	Text      Transformer
	Context   int // tokens of a text, including the end token
	Vocab     int

	Variant
	Texts Texts // treatment of texts before and after OpenCLIP's tokenizer

	LogitBias  float64  // added to scaled similarities before a sigmoid
	LogitScale float64  // factor of cosine similarities: exp of the stored parameter
	Warnings   []string // assumptions about what no file states
}

// Variant holds the differences of other towers from CLIP's: see clip.TextArch and clip.VisionArch.
type Variant struct {
	Bidirectional, Masked, PostNorm              bool
	TextPool, VisionPool                         string
	NoClass, NoPreNorm, NormPooled, NoProjection bool
	NoTextProjection                             bool // text features have the width of the tower
	TextHidden                                   int  // width of a layer before the projection of texts
	RoBERTa                                      bool // the text tower is a RoBERTa, not a BERT
	// EndToken is the id at which the library reads features of texts; LargestToken means the largest id of a text.
	EndToken int
	PadToken int // the id that the library masks
}

// Values of EndToken and PadToken that are not ids.
const (
	AnyToken     = -1 - iota // nothing depends on the id
	LargestToken             // the largest id of a text
)

// Grid returns the number of patches on a side of the image (of output cells, for a ResNet).
func (a Arch) Grid() int { return a.ImageSize / a.Patch }

// Name returns the usual name, such as ViT-B/16 or RN50, or else the sizes of the image tower.
func (a Arch) Name() string {
	if a.Kind == ResNet {
		for name, r := range map[string]struct {
			stages []int
			width  int
		}{
			"RN50": {[]int{3, 4, 6, 3}, 2048}, "RN101": {[]int{3, 4, 23, 3}, 2048}, "RN50x4": {[]int{4, 6, 10, 6},
				2560},
			"RN50x16": {[]int{6, 8, 18, 8}, 3072}, "RN50x64": {[]int{3, 15, 36, 10}, 4096},
		} {
			if slices.Equal(a.Stages, r.stages) && a.Vision.Width == r.width {
				return name
			}
		}
		return fmt.Sprintf("ResNet, stages of %v blocks, width %d", a.Stages, a.Vision.Width)
	}
	for letter, v := range map[string][2]int{"S": {12, 384}, "B": {12, 768}, "L": {24, 1024}, "H": {32, 1280},
		"g": {40, 1408}, "bigG": {48, 1664}} {
		if v == [2]int{a.Vision.Layers, a.Vision.Width} {
			return fmt.Sprintf("ViT-%s/%d", letter, a.Patch)
		}
	}
	return fmt.Sprintf("ViT, %d layers, width %d, patch size %d", a.Vision.Layers, a.Vision.Width, a.Patch)
}
