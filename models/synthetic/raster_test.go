package synthetic

import (
	"math"
	"testing"
)

func covered(mask []uint8) float64 {
	s := 0.0
	for _, m := range mask {
		s += float64(m) / 255
	}
	return s
}

// TestStrokeArea: areas by geometry. A segment of length l and width w with a round cap at each end covers l*w +
// pi*(w/2)^2. A closed square of side a, stroked with width w, covers 4*a*w without the 4 inner quarter overlaps, with
// rounded outer corners: 4*a*w - w^2 + pi*w^2/4.
func TestStrokeArea(t *testing.T) {
	k := newRaster(64)
	got := covered(k.stroke([]contour{{{12, 20}, {42, 44}}}, 6, false))
	want := math.Hypot(30, 24)*6 + math.Pi*9
	if math.Abs(got-want) > 0.02*want {
		t.Errorf("segment covers %.2f, want %.2f", got, want)
	}
	got = covered(k.stroke([]contour{rect(16, 16, 48, 48)}, 4, true))
	if want = 4*32*4 - 16 + math.Pi*4; math.Abs(got-want) > 0.02*want {
		t.Errorf("square outline covers %.2f, want %.2f", got, want)
	}
}

// TestFillArea: a disc of radius 20 with a hole of radius 10 covers 300 pi; overlapping contours cover their union;
// parts outside the image are cut off.
func TestFillArea(t *testing.T) {
	k := newRaster(64)
	p := &pen{}
	p.punched(body, circle(32, 32, 20), circle(32, 32, 10))
	p.fill(body, rect(10, 10, 40, 30), reversed(rect(20, 20, 50, 40)))
	p.fill(body, rect(-20, -20, 16, 16))
	for i, want := range []float64{300 * math.Pi, 600 + 600 - 200, 256} {
		if got := covered(k.cover(p.ops[i])); math.Abs(got-want) > 0.03*want {
			t.Errorf("fill %d covers %.2f, want %.2f", i, got, want)
		}
	}
}

// TestBlur by hand: one pixel of 90 in the middle of 5x5, radius 1: a third along rows, then a third along columns; in
// the corner the mean is over 2 and 2.
func TestBlur(t *testing.T) {
	in := make([]uint8, 25)
	in[12] = 90
	out := blur(in, 5, 1)
	for i, m := range out {
		want := uint8(0)
		if x, y := i%5, i/5; x >= 1 && x <= 3 && y >= 1 && y <= 3 {
			want = 10
		}
		if m != want {
			t.Fatalf("pixel %d is %d, want %d", i, m, want)
		}
	}
	in = make([]uint8, 25)
	in[0] = 80
	if out := blur(in, 5, 1); out[0] != 20 || out[1] != 13 {
		t.Errorf("corner %d and %d, want 20 and 13", out[0], out[1])
	}
}

// TestTexturesHavePeriod: every pattern except speckles repeats, and both colours have a substantial share.
func TestTexturesHavePeriod(t *testing.T) {
	for _, x := range textures {
		in, n := 0, 0
		for u := 0.03; u < 10; u += 0.07 {
			for v := 0.01; v < 10; v += 0.07 {
				if x.at(u, v) > 0 {
					in++
				}
				n++
			}
		}
		if share := float64(in) / float64(n); share < 0.1 || share > 0.7 {
			t.Errorf("%s: second colour on %.0f %%", x.name, 100*share)
		}
	}
	checks, _ := named(textures, "checks")
	for _, c := range [][3]float64{{0.5, 0.5, 1}, {0.5, 1, -1}, {1, 1, 1}, {1, 0.5, -1}} {
		if got := checks.at(c[0], c[1]); got*c[2] <= 0 {
			t.Errorf("checks at %v is %g", c[:2], got)
		}
	}
}

func TestLevel(t *testing.T) {
	easy, hard := Level(-1), Level(2)
	if easy != Level(0) || hard != Level(1) || Default() != Level(0.5) {
		t.Error("levels are not clamped to 0..1")
	}
	if easy.Clutter >= hard.Clutter || easy.Rotate >= hard.Rotate || easy.Contrast <= hard.Contrast ||
		easy.Scale[0] <= hard.Scale[0] {
		t.Errorf("level 0 %+v is not easier than level 1 %+v", easy, hard)
	}
}
