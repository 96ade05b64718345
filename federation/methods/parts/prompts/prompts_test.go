package prompts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// toy has towers of 3 blocks, with tokens of width 8 and 6.
var toy = method.ClientSpec{Backbone: "toy", Classes: 5, Dim: 4, Width: 8, TextLayers: 3, VisionWidth: 6,
	VisionLayers: 3, ImageSize: 7, Patches: 2}

func forms(params []method.Param) string {
	out := convert.Slice(params, func(p method.Param) string { return fmt.Sprintf("%s%v%v", p.Name, p.Shape, p.Std) })
	return strings.Join(out, " ")
}

// Deep prompts of more blocks than a tower has are those of all its blocks; the first block has its own parameter.
func TestDeclaredShapes(t *testing.T) {
	deep := prompts.Deep{OffsetContext: prompts.OffsetContext{Tokens: 2, Std: 1}, Depth: 2, Vision: 4, VisionDepth: 9,
		DeepStd: 3}
	first := deep
	first.Depth, first.VisionDepth = 1, 1
	none := deep
	none.VisionDepth = 0
	for _, c := range []struct {
		got  []method.Param
		want string
	}{
		{deep.Params(toy), "text/prompt[2 8]1 text/deep[1 2 8]3 image/prompt[4 6]3 image/deep[2 4 6]3"},
		{first.Params(toy), "text/prompt[2 8]1 image/prompt[4 6]3"},
		{none.Params(toy), "text/prompt[2 8]1 text/deep[1 2 8]3"},
		{prompts.Visual{Kind: "shallow", Tokens: 2, Std: 1}.Declare(toy, "p", method.Shared), "p[2 6]1"},
		{prompts.Visual{Kind: "deep", Tokens: 2, Std: 1}.Declare(toy, "p", method.Shared), "p[3 2 6]1"},
		{prompts.Visual{Kind: "deep", Tokens: 2}.Declare(method.ClientSpec{}, "p", method.Shared), "p[1 2 0]0"},
		{prompts.Visual{Kind: "pixels", Tokens: 2, Std: 1}.Declare(toy, "p", method.Shared), "p[3 7 7]1"},
		{prompts.ClassContext{Context: prompts.Context{Tokens: 2}}.Declare(toy, method.Shared), "ctx[2 8]0"},
		{prompts.ClassContext{Context: prompts.Context{Tokens: 2}, ClassSpecific: true}.Declare(toy, method.Shared),
			"ctx[5 2 8]0"},
	} {
		if got := forms(c.got); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// The towers get the prompts of the first block and of each later block in order.
func TestTowersGetTheirPrompts(t *testing.T) {
	deep := prompts.Deep{OffsetContext: prompts.OffsetContext{Tokens: 2}, Depth: 3, Vision: 4, VisionDepth: 3}
	visual := prompts.Visual{Kind: "deep", Tokens: 2}
	s := method.NewScope(toy, append(deep.Params(toy), visual.Declare(toy, "prompt", method.Shared)...))
	param := s.Param("prompt")
	block := func(i int) graph.Node { return param.Slice(0, i, i+1).Reshape(2, 6) }
	for _, insert := range []string{"promptsrc", "fedtpg"} {
		deep.Insert = insert
		raw := insert == "fedtpg"
		for what, same := range map[string]bool{
			"text": deep.Text(s) == s.TextFeatures(method.Prompt{Ctx: s.Param("text/prompt"), NoPositions: raw,
				Deep: nn.Unbind(s.Param("text/deep"))}),
			"image": deep.Image(s) == s.Vision(method.VisionPrompts{Tokens: s.Param("image/prompt"), Normed: raw,
				Deep: nn.Unbind(s.Param("image/deep"))}),
		} {
			if !same {
				t.Errorf("%s, %s: other prompts", insert, what)
			}
		}
	}
	first := deep
	first.Depth, first.VisionDepth = 1, 1
	if first.Text(s) != s.TextFeatures(method.Prompt{Ctx: s.Param("text/prompt"), NoPositions: true}) ||
		first.Image(s) != s.Vision(method.VisionPrompts{Tokens: s.Param("image/prompt"), Normed: true}) {
		t.Error("prompts of one block are others")
	}
	if first.VisionDepth = 0; first.Image(s) != s.Image() {
		t.Error("an image tower without prompts runs in the step")
	}
	if visual.Features(s, param) != s.Vision(method.VisionPrompts{Tokens: block(0), Normed: true,
		Deep: []graph.Node{block(1), block(2)}}) {
		t.Error("deep tokens are others")
	}
	visual.Kind = "pixels"
	if visual.Features(s, param) != s.Vision(method.VisionPrompts{Pixels: param}) {
		t.Error("pixels are others")
	}
	visual.Kind = "shallow"
	if visual.Features(s, block(0)) != s.Vision(method.VisionPrompts{Tokens: block(0), Normed: true}) {
		t.Error("shallow tokens are others")
	}
	if err := s.Graph().Err(); err != nil {
		t.Error(err)
	}
}

// Each tower that cannot have a prompt says so, with the option to change.
func TestTowersThatSupportNoPrompts(t *testing.T) {
	resnet, exported := toy, toy
	resnet.VisionLayers = 0
	exported.VisionLayers, exported.VisionWidth, exported.TextLayers = 0, 0, 0
	deep := prompts.Deep{OffsetContext: prompts.OffsetContext{Tokens: 2}, Depth: 1, Vision: 4, VisionDepth: 1}
	deeper := deep
	deeper.Depth, deeper.VisionDepth = 2, 2
	visual := func(kind string) func(s *method.Scope) graph.Node {
		return func(s *method.Scope) graph.Node {
			v := prompts.Visual{Kind: kind, Tokens: 2}
			return v.Features(s, s.Graph().Scalar(0))
		}
	}
	for _, c := range []struct {
		task method.ClientSpec
		make func(s *method.Scope) graph.Node
		want string // "": supported
	}{
		{resnet, deep.Image, ""}, {resnet, deep.Text, ""}, {exported, deep.Text, ""}, {toy, deeper.Text, ""},
		{resnet, deeper.Image, "deep prompts need a vision transformer, but backbone toy is a ResNet; lower " +
			"options.vision_depth"},
		{exported, deep.Image, "exported model, does not support prompt tokens; lower options.vision_depth"},
		{exported, deeper.Text, "does not support deep prompts; set options.depth to 1"},
		{exported, visual("pixels"), ""}, {resnet, visual("shallow"), ""},
		{exported, visual("shallow"), "does not support prompt tokens; use options.vision: pixels"},
		{resnet, visual("deep"), "options.vision: deep needs a vision transformer, but backbone toy is a ResNet"},
	} {
		s := method.NewScope(c.task, deeper.Params(toy))
		c.make(s)
		if err := s.Graph().Err(); c.want == "" && err != nil {
			t.Error(err)
		} else if c.want != "" {
			goldentest.WantErrorOf(t, "a tower", err, c.want)
		}
	}
	if err := (prompts.Visual{Kind: "pixels"}).OnlyTokens(); err == nil ||
		err.Error() != "option vision is pixels; this method needs prompt tokens: set it to shallow or deep" {
		t.Errorf("%v", err)
	}
	if err := (prompts.Visual{Kind: "deep"}).OnlyTokens(); err != nil {
		t.Error(err)
	}
}

// An offset of fewer tokens than words is followed by the other words, for every image; one of more tokens keeps its
// length.
func TestWordsLengthenAnOffset(t *testing.T) {
	for tokens, want := range map[int]string{2: "[4,8] [B,4,8]", 4: "[4,8] [B,4,8]", 6: "[6,8] [B,6,8]"} {
		c := prompts.OffsetContext{Tokens: tokens, Words: prompts.PhotoPrompt}
		s := method.NewScope(toy, nil)
		in := func(name string, batch ...graph.Dim) graph.Node {
			return s.Graph().Input(name, graph.Float, append(graph.Shape(batch), graph.Static(tokens, 8)...))
		}
		one, each := c.AddWords(s, in("one")), c.AddWords(s, in("each", graph.Sym("B")))
		if got := fmt.Sprint(one.Shape(), " ", each.Shape()); got != want || s.Graph().Err() != nil {
			t.Errorf("%d tokens: %s, want %s; %v", tokens, got, want, s.Graph().Err())
		}
	}
}

func TestTemplates(t *testing.T) {
	for option, want := range map[string]string{"auto": "", "dtd": "{} texture.", "my {}": "my {}"} {
		tpl := prompts.Template{Template: option}
		if got := tpl.Text(); got != want || tpl.Check() != nil {
			t.Errorf("%s: %q, %v", option, got, tpl.Check())
		}
		s := method.NewScope(toy, nil)
		if got := tpl.Texts(s); (got == s.HandText()) != (want == "") || want != "" && got != s.HandText(want) {
			t.Errorf("%s: other texts", option)
		}
	}
	if err := (prompts.Template{Template: "a photo"}).Check(); err == nil ||
		!strings.HasPrefix(err.Error(), `option template is "a photo"; it must contain {} for the class, or be one`) {
		t.Errorf("%v", err)
	}
	if got := prompts.Ensemble([]string{"none", "a {}", "imagenet-7"}); len(got) != 8 || got[0] != "a {}" ||
		!slices.Contains(got, "art of the {}.") {
		t.Errorf("%q", got)
	}
}
