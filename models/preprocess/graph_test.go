package preprocess

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// session compiles the preprocessing of uint8 or float32 pixels.
func (p Preprocess) session(t testing.TB, dtype graph.DType) *ort.Session {
	t.Helper()
	g := graph.New()
	shape := graph.Shape{graph.Sym("B"), graph.Sym("H"), graph.Sym("W"), graph.StaticDim(3)}
	if dtype == graph.Float {
		shape = graph.Shape{graph.Sym("B"), graph.StaticDim(3), graph.Sym("H"), graph.Sym("W")}
	}
	model := orttest.Model(t, graph.Output{Name: "out", Node: p.Graph(g.Input("pixels", dtype, shape))})
	return orttest.Open(t, model, ort.Options{IntraThreads: 2})
}

// feed returns images of one size as inputs of the graph: bytes by pixel, or torchvision's ToTensor.
func feed(dtype graph.DType, list []*raster) tensor.Map {
	w, h := list[0].w, list[0].h
	if dtype == graph.Uint8 {
		var v []int64
		for _, r := range list {
			for _, b := range r.pix {
				v = append(v, int64(b))
			}
		}
		return tensor.Map{"pixels": tensor.OfInts(v, len(list), h, w, 3)}
	}
	v := make([]float32, 0, 3*w*h*len(list))
	for _, r := range list {
		for c := range 3 {
			for i := range w * h {
				v = append(v, float32(r.pix[3*i+c])/255)
			}
		}
	}
	return tensor.Map{"pixels": tensor.Of(v, len(list), 3, h, w)}
}

// noise is an image of random levels, half of them black or white, so that kernels overshoot.
func noise(w, h int, r *rand.Rand) *raster {
	m := newRaster(w, h)
	for i := range m.pix {
		switch v := r.IntN(512); {
		case v < 256:
			m.pix[i] = byte(v)
		case v < 384:
			m.pix[i] = 255
		}
	}
	return m
}

// The graph returns the same bits as Pixels, which TestAgainstPillow compares with Pillow: enlarging and reducing,
// cropped and squashed, extreme aspect ratios, one pixel, scales at which weights lie exactly between two whole numbers
// (64).
func TestGraph(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sizes := [][2]int{{1, 1}, {1, 7}, {2, 3}, {31, 32}, {32, 32}, {33, 31}, {64, 64}, {75, 50}, {32, 35}, {101, 257},
		{500, 375}, {375, 500}, {640, 33}, {7, 900}, {3000, 5}, {2048, 3}, {20000, 1}}
	for _, p := range []Preprocess{
		CLIP(32), {Size: 32, Resize: Bilinear, Crop: true, Mean: SigLIP(1).Mean, Std: SigLIP(1).Std},
		{Size: 32, Resize: Bicubic, Crop: true, Floor: true, Std: CLIP(1).Std},
		{Size: 33, Resize: Bicubic, Mean: CLIP(1).Mean, Std: CLIP(1).Std},
		{Size: 20, Resize: Bilinear, Mean: CLIP(1).Mean, Std: CLIP(1).Std},
		CLIP(224),
	} {
		for _, dtype := range []graph.DType{graph.Uint8, graph.Float} {
			s := p.session(t, dtype)
			for _, wh := range sizes {
				list := []*raster{noise(wh[0], wh[1], r), noise(wh[0], wh[1], r)}
				out, err := s.Run(context.Background(), feed(dtype, list))
				goldentest.NoError(t, err)
				name := fmt.Sprintf("%d %s crop %v %v %v", p.Size, p.Resize, p.Crop, dtype, wh)
				for i, m := range list {
					got, want := out["out"].Row(i).Data, p.Pixels(m)
					bad := 0
					for j := range want {
						if got[j] != want[j] {
							bad++
						}
					}
					if bad > 0 || len(got) != len(want) {
						t.Errorf("%s: %d of %d values differ", name, bad, len(want))
						break
					}
				}
			}
		}
	}
}

// By hand: red 1, green 2 and blue 3 are 65536 + 512 + 3, and white is 2^24 - 1. What Unpack makes of packed levels
// equals Pixels bit for bit, with every level of every colour beside others.
func TestUnpack(t *testing.T) {
	if got := Pack([]byte{1, 2, 3, 255, 255, 255, 0, 0, 0}); !slices.Equal(got, []float32{66051, 16777215, 0}) {
		t.Error(got)
	}
	p := CLIP(64)
	g, side := graph.New(), graph.StaticDim(p.Size)
	packed := g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(1), side, side})
	model := orttest.Model(t, graph.Output{Name: "out", Node: p.Unpack(packed)})
	var feeds, want []float32
	for i := range 3 {
		m := noise(p.Size, p.Size, rand.New(rand.NewPCG(1, uint64(i))))
		for v := range 256 {
			copy(m.pix[3*v:], []byte{byte(v), byte(v + 85*i), byte(7 * v)})
		}
		feeds, want = append(feeds, Pack(p.Levels(m, nil))...), append(want, p.Pixels(m)...)
	}
	out := orttest.RunOnce(t, model, ort.Options{}, tensor.Map{"pixels": tensor.Of(feeds, 3, 1, p.Size,
		p.Size)})
	if got := out["out"]; !slices.Equal(got.Shape, []int{3, 3, p.Size, p.Size}) || !slices.Equal(got.Data, want) {
		t.Errorf("other pixels, %v", got)
	}
}

func BenchmarkGraph(b *testing.B) {
	for _, wh := range [][2]int{{500, 375}, {4000, 3000}} {
		m := noise(wh[0], wh[1], rand.New(rand.NewPCG(1, 2)))
		b.Run(fmt.Sprintf("%dx%d/go", wh[0], wh[1]), func(b *testing.B) {
			for b.Loop() {
				CLIP(224).Pixels(m)
			}
		})
		for _, dtype := range []graph.DType{graph.Uint8, graph.Float} {
			s := CLIP(224).session(b, dtype)
			in := feed(dtype, []*raster{m})
			b.Run(fmt.Sprintf("%dx%d/%v", wh[0], wh[1], dtype), func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Run(context.Background(), in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
