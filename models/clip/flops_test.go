package clip_test

import (
	"math"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
)

// The counts from the architecture equal those of the products and convolutions of the graph: for each, the size of its
// result times the length of the sums. The pixels' convolution is a product in the graph.
func TestVisionFLOPs(t *testing.T) {
	count := func(roots ...graph.Node) (flops float64) {
		for _, op := range graph.Reachable(roots...) {
			inner := 0
			switch op.Kind {
			case "MatMul", "FusedMatMul", "Gemm":
				inner = op.In[0].Dim(-1)
				if op.Attrs.Int("transA", 0) == 1 {
					inner = op.In[0].Dim(-2)
				}
			case "Conv":
				w := op.In[1].Shape()
				inner = w[1].N * w[2].N * w[3].N
			default:
				continue
			}
			if len(graph.Inputs(op.Out[0])) > 0 { // otherwise it is a constant
				flops += 2 * float64(op.Out[0].Shape().Size().N*inner)
			}
		}
		return flops
	}
	small := clip.VisionArch{Width: 64, Layers: 3, Heads: 2, Patch: 16, Image: 64, EmbedDim: 48}
	for _, a := range []clip.VisionArch{small, promptedRN} {
		v, shapes := clip.Vision{VisionArch: a}, stored(a)
		g := graph.New()
		pixels := g.Input("pixels", graph.Float, graph.Static(1, 3, a.Image, a.Image))
		w := onDisk{size: shapes, at: map[string]int64{}}
		for name := range shapes { // all names are different
			w.at[name] = int64(len(w.at)) << 30
		}
		image, _ := v.Features(g, w, pixels)
		if got, want := v.FLOPs(0, false), count(image); got != want {
			t.Errorf("%+v: %g, the graph has %g", a, got, want)
		}
		if a.ResNet() {
			continue
		}
		tokens := g.Input("tokens", graph.Float, graph.Static(5, a.Width))
		image, _ = v.PromptedFeatures(g, w, pixels, clip.VisionPrompts{Tokens: tokens, Normed: true})
		d, err := grad.Of(image.Sum(), tokens)
		if err != nil {
			t.Fatal(err)
		}
		// The gradient of the last attention needs no gradient of a query: w² + 4nw less in all.
		if got, want := v.FLOPs(5, true), count(image, d[0]); math.Abs(got-want) > 0.02*want {
			t.Errorf("%+v, a step: %g, the graph has %g", a, got, want)
		}
	}
	if f := (clip.Vision{VisionArch: clip.VisionB16}).FLOPs(0, false) / 2e9; f < 16 || f > 17.6 {
		t.Errorf("ViT-B/16 takes %g GMAC; 17.6 are published, with the last block for all patches", f)
	}
}
