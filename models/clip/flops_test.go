package clip_test

import (
	"math"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
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
		d := orttest.Gradients(t, image.Sum(), tokens)
		// The gradient of the last attention needs no gradient of a query: w² + 4nw less in all.
		if got, want := v.FLOPs(5, true), count(image, d[0]); math.Abs(got-want) > 0.02*want {
			t.Errorf("%+v, a step: %g, the graph has %g", a, got, want)
		}
	}
	if f := (clip.Vision{VisionArch: clip.VisionB16}).FLOPs(0, false) / 2e9; f < 16 || f > 17.6 {
		t.Errorf("ViT-B/16 takes %g GMAC; 17.6 are published, with the last block for all patches", f)
	}
}

// FeatureBytes covers the values that are needed at the same time where operators run in the graph's order, each into
// new memory, and is at most three times as much.
func TestFeatureBytes(t *testing.T) {
	for _, a := range []clip.VisionArch{clip.VisionB32, clip.VisionB16, clip.VisionL14, clip.RN50} {
		shapes, g := stored(a), graph.New()
		w := onDisk{size: shapes, at: map[string]int64{}}
		for name := range shapes {
			w.at[name] = int64(len(w.at)) << 30
		}
		image, _ := clip.Vision{VisionArch: a}.Features(g, w, g.Input("pixels", graph.Float, graph.Static(1, 3, a.Image,
			a.Image)))
		order := graph.Reachable(image)
		last := map[graph.Node]int{}
		for i, op := range order {
			for _, in := range op.In {
				last[in] = i
			}
		}
		now, most := 0, 0
		size := func(n graph.Node) int {
			if len(graph.Inputs(n)) == 0 { // a constant
				return 0
			}
			return 4 * n.Shape().Size().N
		}
		for i, op := range order {
			for _, out := range op.Out {
				now += size(out)
			}
			most = max(most, now)
			for in, end := range last {
				if end == i {
					now -= size(in)
				}
			}
		}
		if got := a.FeatureBytes(); got < most || got > 3*most {
			t.Errorf("%+v: %d bytes, of which the graph needs %d", a, got, most)
		}
	}
	if n := (clip.VisionArch{Image: 224, EmbedDim: 512}).FeatureBytes(); n != 0 {
		t.Errorf("an unknown architecture takes %d bytes", n)
	}
}
