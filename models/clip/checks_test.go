package clip_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// Each change of a good architecture is refused, or is allowed at its limit.
func TestArchitectures(t *testing.T) {
	type (
		text   = clip.TextArch
		vision = clip.VisionArch
	)
	for i, c := range []struct {
		change func(a *text)
		want   string
	}{
		{func(*text) {}, ""}, {func(a *text) { a.Context = 2 }, ""},
		{func(a *text) { a.Context = 1 }, "text tower: context 1, at least 2 tokens"},
		{func(a *text) { a.Hidden = -1 }, "a layer of -1 units"},
		{func(a *text) { a.Layers = 0 }, "layers 0, heads 8 and embed_dim 512 must all be positive"},
		{func(a *text) { a.Width, a.Heads = 0, 1 }, "width 0, layers 12"},
		{func(a *text) { a.Heads = 0 }, "heads 0"}, {func(a *text) { a.EmbedDim = 0 }, "embed_dim 0"},
		{func(a *text) { a.Width, a.Heads, a.Layers, a.EmbedDim = 1, 1, 1, 1 }, ""},
		{func(a *text) { a.MLP = -1 }, "feed-forward layers of -1 units"},
		{func(a *text) { a.MLP = 1 }, ""}, {func(a *text) { a.Heads = 7 }, "does not divide into 7 heads"},
		{func(a *text) { a.Activation = nn.QuickGELU }, ""}, {func(a *text) { a.Activation = nn.GELU }, ""},
		{func(a *text) { a.Activation = nn.GELUTanh }, ""},
		{func(a *text) { a.Activation = "relu" }, `activation "relu", must be quick_gelu, gelu or gelu_tanh`},
		{func(a *text) { a.Eps = 1 }, ""}, {func(a *text) { a.Eps = 1.1 }, "eps 1.1"},
		{func(a *text) { a.Eps = -1e-9 }, "eps -1e-09"}, {func(a *text) { a.Eps = math.NaN() }, "eps NaN"},
	} {
		a := clip.TextB
		c.change(&a)
		if err := a.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("text %d: %v, want %q", i, err, c.want)
		}
	}
	for i, c := range []struct {
		of     clip.VisionArch
		change func(a *vision)
		want   string
	}{
		{clip.VisionB16, func(*vision) {}, ""}, {clip.RN50, func(*vision) {}, ""},
		{clip.VisionB16, func(a *vision) { a.Image = 230 }, ""}, // the rest is ignored
		{clip.VisionB16, func(a *vision) { a.Image = 16 }, ""},
		{clip.VisionB16, func(a *vision) { a.Image = 15 }, "patches of 16 pixels do not tile an image of 15"},
		{clip.VisionB16, func(a *vision) { a.Patch = 0 }, "patches of 0 pixels"},
		{clip.VisionB16, func(a *vision) { a.NoClass = true }, "without a class token, pool must be mean or"},
		{clip.VisionB16, func(a *vision) { a.NoClass, a.Pool = true, clip.FirstPool }, "without a class token"},
		{clip.VisionB16, func(a *vision) { a.NoClass, a.Pool = true, clip.MeanPool }, ""},
		{clip.VisionB16, func(a *vision) { a.NoProjection = true }, "features of 512 numbers cannot come from"},
		{clip.VisionB16, func(a *vision) { a.NoProjection, a.EmbedDim = true, 768 }, ""},
		{clip.VisionB16, func(a *vision) { a.Pool = clip.AttentionPool }, ""},
		{clip.VisionB16, func(a *vision) { a.NormPooled = true }, ""},
		{clip.VisionB16, func(a *vision) { a.NormPooled, a.Pool = true, clip.AttentionPool }, "the last norm in"},
		{clip.RN50, func(a *vision) { a.Image = 230 }, "do not tile an image of 230"},
		{clip.RN50, func(a *vision) { a.Patch, a.Image = 16, 224 }, "patch 16 of a ResNet, must be 32"},
		{clip.RN50, func(a *vision) { a.Stages = []int{1, 2, 3} }, "a ResNet of 3 stages, must be 4"},
		{clip.RN50, func(a *vision) { a.Stages = []int{1, 1000, 1, 1} }, ""},
		{clip.RN50, func(a *vision) { a.Stages = []int{1, 1001, 1, 1} }, "stage 2 of the ResNet has 1001 blocks"},
		{clip.RN50, func(a *vision) { a.Stages = []int{1, 1, 1, 0} }, "stage 4 of the ResNet has 0 blocks"},
		{clip.RN50, func(a *vision) { a.Width, a.Heads = 2080, 32 }, "a ResNet of width 2080 with 32 heads"},
		{clip.RN50, func(a *vision) { a.Heads = 31 }, "with 31 heads"},
		{clip.RN50, func(a *vision) { a.Width, a.Heads = 0, 0 }, "a ResNet of width 0"},
		{clip.RN50, func(a *vision) { a.EmbedDim = 0 }, "embed_dim 0"},
		{clip.RN50, func(a *vision) { a.EmbedDim = 1 }, ""},
	} {
		a := c.of
		c.change(&a)
		if err := a.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("vision %d: %v, want %q", i, err, c.want)
		}
	}
}

// By hand, for width 2, so 12 multiply-adds for query, key and value and 36 for the rest of a row: a middle block
// computes 4 rows, 2 of the prompt and 2 of the class, with 3 + 4 + 3 scores. Products with weights count twice, scores
// with 2·2 multiply-adds each count three times in both passes: 2·(2·48·4 + 3·2·2·10) = 1008.
func TestStepFLOPsOfMiddleBlocks(t *testing.T) {
	ctx := graph.New().Input("p", graph.Float, graph.Static(1, 2))
	build := func(layers int) float64 {
		a := clip.TextArch{Width: 2, Layers: layers, Heads: 1, Context: 8, EmbedDim: 2}
		return clip.Text{TextArch: a}.StepFLOPs(&clip.Suffixes{IDs: [][]int{{1, 2}}}, []clip.Prompt{{Ctx: ctx}})
	}
	if got := build(3) - build(2); got != 1008 {
		t.Errorf("%v operations, want 1008", got)
	}
	// 5 rows; a block keeps 7·2+3 numbers, or 3·2+3 more if it is changed; 2·2+2·3 are the working memory.
	if got := clip.BlocksStepBytes(5, 2, 3, 4, false); got != 4*5*(4*17+10) {
		t.Errorf("%d bytes", got)
	}
	if got := clip.BlocksStepBytes(5, 2, 3, 4, true); got != 4*5*(4*26+10) {
		t.Errorf("%d bytes with changes", got)
	}
}

// By hand: one class of 2 tokens and a prompt of 1 are 4 rows, for width 2 with 8 units, 3 blocks and a head. Attention
// of an image's own prompt is over all 4 rows. Prompts for each class are read at the end of 4 positions.
func TestStepBytes(t *testing.T) {
	s, err := clip.NewSuffixes([]string{"a"}, [][]int{{1, 2}}, clip.SpecialTokens{SOS: 3}, 2, embedding(2))
	goldentest.NoError(t, err)
	build := func(kernels bool, p clip.Prompt, shape graph.Shape) int {
		g := graph.New()
		if kernels {
			g.UseKernels(graph.CPUKernels)
		}
		p.Ctx = g.Input("p", graph.Float, shape)
		a := clip.TextArch{Width: 2, Layers: 3, Heads: 1, Context: 8, EmbedDim: 2}
		return clip.Text{TextArch: a}.StepBytes(s, p)
	}
	one, images := graph.Static(1, 2), graph.Shape{graph.Sym("B"), graph.StaticDim(1), graph.StaticDim(2)}
	shared := 4 * 4 * (3*(7*2+8) + 2*2 + 2*8)
	plain := 2 * 4 * 4 * (3*(12*2+2*8+3*4) + 2)
	apart := shared + 2*4*4*3*(2+4)
	for _, c := range []struct {
		kernels bool
		p       clip.Prompt
		shape   graph.Shape
		want    int
	}{
		{true, clip.Prompt{}, one, shared}, {true, clip.Prompt{}, images, apart}, {false, clip.Prompt{}, one, plain},
		{false, clip.Prompt{}, images, plain}, {true, clip.Prompt{Class: clip.Front}, one, apart},
		{true, clip.Prompt{PerClass: true}, graph.Static(1, 1, 2), apart},
	} {
		if got := build(c.kernels, c.p, c.shape); got != c.want {
			t.Errorf("%+v: %d bytes, want %d", c, got, c.want)
		}
	}
}
