package clip

import (
	"errors"
	"fmt"
	"math"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// Weights returns tensors by the names of OpenAI's state_dict. Some tensors have two accepted forms, and Has decides
// between them: attn.in_proj_weight [3w,w] or attn.q_proj.weight, k_proj, v_proj [w,w] (likewise for .bias);
// text_projection [w,e] or text_projection.weight [e,w]; visual.proj [w,e] or visual_projection.weight [e,w].
// visual.conv1.weight [w,3,p,p] of a transformer is requested as [w,3·p·p]. A convolution CONV.weight of a ResNet
// with CONV.bias [out] contains its batch normalisation; without a bias, the tensors of the normalisation are requested
// too.
type Weights interface {
	Has(name string) bool
	// Node returns the tensor as a constant or as an input, in the given shape; a tensor of another size is an error of
	// the graph.
	Node(g *graph.Graph, name string, shape ...int) graph.Node
}

// TextArch is the architecture of a text tower.
type TextArch struct {
	Width      int     `json:"width"`
	Layers     int     `json:"layers"`
	Heads      int     `json:"heads"`
	MLP        int     `json:"mlp,omitempty"`        // units of the feed-forward layers; 0 means 4·Width
	Context    int     `json:"context"`              // maximal number of tokens, 77 in the published models
	EmbedDim   int     `json:"embed_dim"`            // dimension of image and text features
	Activation string  `json:"activation,omitempty"` // nn.QuickGELU (default), nn.GELU or nn.GELUTanh
	Eps        float64 `json:"eps,omitempty"`        // of the layer norms, default 1e-5

	// Bidirectional means no causal mask: every token attends to all tokens, including padding. Such a tower has no
	// shared-prefix form.
	Bidirectional  bool   `json:"bidirectional,omitempty"`
	Masked         bool   `json:"masked,omitempty"`          // bidirectional towers only: padding is masked
	PostNorm       bool   `json:"post_norm,omitempty"`       // bidirectional towers only: norms as in BERT
	Pad            int    `json:"pad,omitempty"`             // padding token
	Pool           string `json:"pool,omitempty"`            // EndPool (default), FirstPool, LastPool or MeanPool
	Pooler         bool   `json:"pooler,omitempty"`          // a layer and tanh after the pooling, as in BERT
	Hidden         int    `json:"hidden,omitempty"`          // units of a layer with GELU before the projection
	ProjectionBias bool   `json:"projection_bias,omitempty"` // the projection has a bias
	NoProjection   bool   `json:"no_projection,omitempty"`   // features have the width of the tower
}

// VisionArch is the architecture of an image tower: a vision transformer, or CLIP's modified ResNet if Stages is set.
// For a ResNet, Width, Heads and Patch describe the attention pooling: Width is 32 times the channels of the stem,
// heads have width 64, and a cell of the last feature map covers 32x32 pixels; Layers, MLP and Activation do not apply.
type VisionArch struct {
	Width  int   `json:"width"`
	Layers int   `json:"layers"`
	Heads  int   `json:"heads"`
	Stages []int `json:"stages,omitempty"` // of a ResNet: bottleneck blocks in each of its four stages
	MLP    int   `json:"mlp,omitempty"`    // units of the feed-forward layers; 0 means 4·Width
	Patch  int   `json:"patch"`            // side of a patch in pixels
	// Image is the side of the image in pixels. A transformer ignores pixels on the right and at the bottom that fill
	// no whole patch.
	Image      int     `json:"image"`
	EmbedDim   int     `json:"embed_dim"`
	Activation string  `json:"activation,omitempty"`
	Eps        float64 `json:"eps,omitempty"` // of the normalisations, default 1e-5

	// Pool is FirstPool (default), which reads the class token, or MeanPool or AttentionPool of the patches.
	Pool         string `json:"pool,omitempty"`
	NoClass      bool   `json:"no_class,omitempty"`      // there is no class token
	NoPreNorm    bool   `json:"no_pre_norm,omitempty"`   // no norm before the first block
	NormPooled   bool   `json:"norm_pooled,omitempty"`   // the last norm follows the pooling
	NoProjection bool   `json:"no_projection,omitempty"` // features have the width of the tower

	ProjectionBias bool `json:"projection_bias,omitempty"` // the projection has a bias
}

// Published sizes.
var (
	TextB     = TextArch{Width: 512, Layers: 12, Heads: 8, Context: 77, EmbedDim: 512}
	TextL     = TextArch{Width: 768, Layers: 12, Heads: 12, Context: 77, EmbedDim: 768}
	VisionL14 = VisionArch{Width: 1024, Layers: 24, Heads: 16, Patch: 14, Image: 224, EmbedDim: 768}
	VisionB16 = VisionArch{Width: 768, Layers: 12, Heads: 12, Patch: 16, Image: 224, EmbedDim: 512}
	VisionB32 = VisionArch{Width: 768, Layers: 12, Heads: 12, Patch: 32, Image: 224, EmbedDim: 512}
	RN50      = VisionArch{Width: 2048, Heads: 32, Stages: []int{3, 4, 6, 3}, Patch: 32, Image: 224, EmbedDim: 1024}
	RN101     = VisionArch{Width: 2048, Heads: 32, Stages: []int{3, 4, 23, 3}, Patch: 32, Image: 224, EmbedDim: 512}
)

// Check returns an error if the architecture is invalid.
func (a TextArch) Check() error {
	if a.Context < 2 {
		return fmt.Errorf("text tower: context %d, at least 2 tokens are needed", a.Context)
	}

	if a.Hidden < 0 {
		return fmt.Errorf("text tower: a layer of %d units in front of the projection", a.Hidden)
	}

	if (a.PostNorm || a.Masked) && !a.Bidirectional {
		return errors.New("text tower: norms after the blocks and masked padding need a tower without causal mask")
	}

	if a.NoProjection && (a.EmbedDim != a.Width || a.Hidden > 0 || a.ProjectionBias) {
		return fmt.Errorf("text tower: without a projection, features of %d numbers cannot come from a width of %d",
			a.EmbedDim, a.Width)
	}

	if err := checkPool("text tower", a.Pool, EndPool, FirstPool, LastPool, MeanPool); err != nil {
		return err
	}

	return checkTower("text tower", a.Width, a.Layers, a.Heads, a.MLP, a.EmbedDim, a.Activation, a.Eps)
}

// Check returns an error if the architecture is invalid.
func (a VisionArch) Check() error {
	if a.Patch < 1 || a.Image < a.Patch || a.ResNet() && a.Image%a.Patch != 0 {
		return fmt.Errorf("vision tower: patches of %d pixels do not tile an image of %d", a.Patch, a.Image)
	}

	if a.ResNet() {
		return a.checkResNet()
	}

	if err := a.checkPooling(); err != nil {
		return err
	}

	return checkTower("vision tower", a.Width, a.Layers, a.Heads, a.MLP, a.EmbedDim, a.Activation, a.Eps)
}

func checkTower(what string, width, layers, heads, mlp, embedDim int, act string, eps float64) error {
	switch {
	case width < 1 || layers < 1 || heads < 1 || embedDim < 1:
		return fmt.Errorf("%s: width %d, layers %d, heads %d and embed_dim %d must all be positive", what,
			width, layers, heads, embedDim)
	case mlp < 0:
		return fmt.Errorf("%s: feed-forward layers of %d units", what, mlp)
	case width%heads != 0:
		return fmt.Errorf("%s: width %d does not divide into %d heads", what, width, heads)
	case act != "" && act != nn.QuickGELU && act != nn.GELU && act != nn.GELUTanh:
		return fmt.Errorf("%s: activation %q, must be %s, %s or %s", what, act, nn.QuickGELU, nn.GELU, nn.GELUTanh)
	}

	return checkEps(what, eps)
}

// checkEps refuses an epsilon above 1, which outweighs the variance of activations, since norms keep it near 1. Trained
// models have 1e-12 to 1e-3.
func checkEps(what string, eps float64) error {
	if !(eps >= 0 && eps <= 1) {
		return fmt.Errorf("%s: eps %g of the norms must be from 0 to 1", what, eps)
	}
	return nil
}

// ResNet reports whether the tower is CLIP's modified ResNet, and not a vision transformer.
func (a VisionArch) ResNet() bool { return len(a.Stages) > 0 }

// Patches returns the number of patch tokens of an image; for a ResNet, of cells of its last feature map.
func (a VisionArch) Patches() int { return (a.Image / a.Patch) * (a.Image / a.Patch) }

// Text builds text towers of one architecture.
type Text struct {
	TextArch
	// Box, if set, is the whole tower, whose inside cannot be reached: embeddings [C,Context,Width] and the position
	// [C] that is read become features. All prompts use the plain form.
	Box func(emb, read graph.Node) graph.Node
}

// Vision builds image towers of one architecture.
type Vision struct {
	VisionArch
	// Box, if set, is the whole tower, whose inside cannot be reached: pixels become image features.
	Box func(pixels graph.Node) graph.Node
	// BatchStats, if set, makes a ResNet normalise by the mean and variance [channels] of the current batch, as in
	// training, and receives them with the name of the normalisation. Otherwise running_mean and running_var are used.
	BatchStats func(norm string, mean, variance graph.Node)
}

// tower holds the common properties of both towers' residual blocks.
type tower struct {
	graph             *graph.Graph
	weights           Weights
	prefix            string // "" or "visual."
	width, heads, mlp int
	act               string
	eps               float64
	changes           BlockChanges
}

func (a TextArch) tower(g *graph.Graph, w Weights) tower {
	return tower{g, w, "", a.Width, a.Heads, a.Units(), a.Activation, a.Eps, BlockChanges{}}.withDefaults()
}

func (a VisionArch) tower(g *graph.Graph, w Weights) tower {
	return tower{g, w, "visual.", a.Width, a.Heads, a.Units(), a.Activation, a.Eps, BlockChanges{}}.withDefaults()
}

// Units returns the number of units of the feed-forward layers.
func (a TextArch) Units() int { return units(a.MLP, a.Width) }

// Units returns the number of units of the feed-forward layers.
func (a VisionArch) Units() int { return units(a.MLP, a.Width) }

func units(mlp, width int) int {
	if mlp == 0 {
		return 4 * width
	}
	return mlp
}

func (t tower) withDefaults() tower {
	if t.act == "" {
		t.act = nn.QuickGELU
	}
	if t.eps == 0 {
		t.eps = 1e-5
	}
	return t
}

func (t tower) norm(x graph.Node, name string) graph.Node {
	return nn.LayerNorm(x, t.weights.Node(t.graph, name+".weight", t.width),
		t.weights.Node(t.graph, name+".bias", t.width), t.eps)
}

// project maps rows [N,w] to the space of image and text features [N,embedDim]. The projection is stored as plain
// [w,embedDim], or as its transpose under another name.
func (t tower) project(x graph.Node, plain, transposed string, embedDim int) graph.Node {
	var y graph.Node
	if w := x.Dim(-1); t.weights.Has(transposed) {
		y = nn.Linear(x, t.weights.Node(t.graph, transposed, embedDim, w), graph.Node{}, 1, 1)
	} else {
		y = x.MatMul(t.weights.Node(t.graph, plain, w, embedDim))
	}
	return block{tower: t}.changed(y, x, 1, embedDim, Head)
}

// Limits of the factor of similarities and of the bias that is added to them. Both follow from float32, in which a
// cosine of some 1000 products has an error of about 2^-20. Above the largest scale, this error is a whole unit of a
// logit, a factor e of a probability. Below the smallest scale, all exponentials of a softmax equal 1 within this
// error, so all classes have the same probability. A larger bias rounds logits to steps of more than 1/16. Trained
// models have scales from 1 to some 120 (CLIP stops at 100) and biases down to -17 (SigLIP).
const (
	MaxScale = 1 << 20
	MinScale = 1.0 / MaxScale
)

// CheckScale returns an error if similarities scale x cosine + bias lose their precision.
func CheckScale(scale, bias float64) error {
	if !(scale >= MinScale && scale <= MaxScale) {
		return fmt.Errorf("logit_scale %.6g must be a number from %.2g to %d: beyond, float32 cannot distinguish "+
			"classes", scale, MinScale, MaxScale)
	}

	if !(math.Abs(bias) <= MaxScale) {
		return fmt.Errorf("logit_bias %.6g must be a number from %d to %d: beyond, float32 cannot distinguish classes",
			bias, -MaxScale, MaxScale)
	}

	return nil
}
