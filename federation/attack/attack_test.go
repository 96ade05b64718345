package attack

import (
	"image"
	"image/color"
	"io"
	"math"
	"slices"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

func sent(kind string, strength float64, client int) tensor.Map {
	a := Attack{Config{Kind: kind, Strength: strength}, []int{1}, 3}
	up := method.Upload{Client: client, Shared: tensor.Map{"ctx": tensor.Of([]float32{3, 0}, 2)}}
	honest := up.Shared
	a.Upload(0, tensor.Map{"ctx": tensor.Of([]float32{1, 1}, 2)}, &up, nil)
	if honest["ctx"].Data[0] != 3 {
		panic("changed in place")
	}
	return up.Shared
}

// The update is (2,-1) from (1,1): with its sign flipped (-1,2), times ten (21,-9); with label flips and honest clients
// (3,0).
func TestUploads(t *testing.T) {
	for _, c := range []struct {
		kind     string
		strength float64
		client   int
		want     []float32
	}{{SignFlip, 1, 1, []float32{-1, 2}}, {SignFlip, 2, 1, []float32{-3, 3}}, {Scaled, 10, 1, []float32{21, -9}},
		{Backdoor, 10, 1, []float32{21, -9}}, {LabelFlip, 10, 1, []float32{3, 0}}, {None, 10, 1, []float32{3, 0}},
		{SignFlip, 10, 0, []float32{3, 0}}, {Scaled, 1, 1, []float32{3, 0}}, {Gaussian, 0, 1, []float32{1, 1}}} {
		if got := sent(c.kind, c.strength, c.client)["ctx"].Data; !slices.Equal(got, c.want) {
			t.Errorf("%s of strength %v by client %d sends %v, by hand %v", c.kind, c.strength, c.client, got, c.want)
		}
	}
}

// The root mean square of the update (2,-1,0,...) from (1,0,...) of 20,000 numbers is √(5/20000). Twenty times that
// must be the standard deviation of the noise within three standard errors, and its mean must be as close to 0. The
// same round has the same noise.
func TestGaussian(t *testing.T) {
	const n = 20000
	a := Attack{Config{Kind: Gaussian, Strength: 20}, []int{1}, 3}
	noise := func(round int) []float32 {
		old, now := tensor.New(n), tensor.New(n)
		old.Data[0], now.Data[0], now.Data[1] = 1, 3, -1
		up := method.Upload{Client: 1, Shared: tensor.Map{"ctx": now}}
		a.Upload(round, tensor.Map{"ctx": old}, &up, nil)
		return up.Shared["ctx"].Data
	}
	got, std := noise(0), 20*math.Sqrt(5./n)
	mean, square := 0., 0.
	for _, v := range got {
		mean, square = mean+float64(v)/n, square+float64(v)*float64(v)/n
	}
	if math.Abs(mean) > 3*std/math.Sqrt(n) || math.Abs(math.Sqrt(square)-std) > 3*std/math.Sqrt(2*n) {
		t.Errorf("mean %v, standard deviation %v; by hand 0 and %v", mean, math.Sqrt(square), std)
	}
	if !slices.Equal(got, noise(0)) || slices.Equal(got, noise(1)) {
		t.Error("noise is not of its round")
	}
}

// Model replacement: with n clients of equal weight, n-1 of them converged, the mean of uploads with γ = n equals the
// attacker's parameters.
func TestReplacement(t *testing.T) {
	got := sent(Backdoor, 4, 1)["ctx"].Data
	for i, want := range []float32{3, 0} {
		if mean := (got[i] + 3*1) / 4; mean != want {
			t.Errorf("the mean is %v, the attacker's model %v", mean, want)
		}
	}
}

func TestAttackers(t *testing.T) {
	c := Config{Kind: SignFlip, Share: 0.3}
	got, err := c.Attackers([]int{0, 1, 2, 3, 4, 6}, 5)
	if err != nil || len(got) != 2 || slices.Contains(got, 5) { // 1.8, rounded
		t.Errorf("%v, %v", got, err)
	}
	if again, _ := c.Attackers([]int{0, 1, 2, 3, 4, 6}, 5); !slices.Equal(got, again) {
		t.Errorf("%v and %v", got, again)
	}
	c.Clients = []int{4, 2, 4}
	if got, err := c.Attackers([]int{0, 1, 2, 3, 4}, 5); err != nil || !slices.Equal(got, []int{2, 4}) {
		t.Errorf("%v, %v", got, err)
	}
	_, err = c.Attackers([]int{0, 1, 2}, 5)
	goldentest.WantError(t, err, "client 4 does not train; 3 clients train")
	if got, _ := Defaults().Attackers([]int{0, 1, 2, 3, 4}, 5); got != nil {
		t.Errorf("without an attack %v attack", got)
	}
}

// Four of six labels are not the target 2; half of these carry the trigger. Flipped labels of 5 classes are mirrored.
func TestTrainingData(t *testing.T) {
	a := Attack{Config{Kind: Backdoor, Target: 2, Poison: 0.5}, []int{0}, 1}
	labels := []int64{2, 0, 1, 2, 3, 4}
	got := a.Poisoned(0, labels)
	if len(got) != 2 || !slices.IsSorted(got) || slices.Contains(got, 0) || slices.Contains(got, 3) ||
		a.Poisoned(1, labels) != nil {
		t.Errorf("%v", got)
	}
	a.Kind = LabelFlip
	if got := a.Labels(0, labels, 5); !slices.Equal(got, []int64{2, 4, 3, 2, 1, 0}) {
		t.Errorf("%v", got)
	}
	if got := a.Labels(1, labels, 5); !slices.Equal(got, labels) || a.Poisoned(0, labels) != nil {
		t.Errorf("%v", got)
	}
}

// The middle square of a 30x20 image is at x 5 to 25. A quarter of its side is 5 pixels, up to (25,20). That of a 20x30
// image is at y 5 to 25.
func TestTrigger(t *testing.T) {
	for end, size := range map[image.Point]image.Point{{25, 20}: {30, 20}, {20, 25}: {20, 30}} {
		img := image.NewGray(image.Rectangle{Max: size})
		e := data.Example{ID: "a", Label: 4, Load: func() (image.Image, error) { return img, nil }}
		got := Config{Trigger: 0.25, Target: 1}.Triggered(e, func(io.Reader) (image.Image, error) { return nil, nil })
		out, err := got.Image(nil)
		if err != nil || got.ID == e.ID || got.Stamp == e.Stamp || got.Label != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		square := image.Rectangle{Min: end.Sub(image.Pt(5, 5)), Max: end}
		for x := range size.X {
			for y := range size.Y {
				r, _, _, _ := out.At(x, y).RGBA()
				if white := image.Pt(x, y).In(square); white != (r == 0xffff) {
					t.Fatalf("pixel %d,%d of %v is %v", x, y, size, out.At(x, y))
				}
				if img.At(x, y) != (color.Gray{}) {
					t.Fatal("the image itself was changed")
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	goldentest.NoError(t, Defaults().Check())
	for say, c := range map[string]Config{"attack.kind": {Kind: "flip"}, "attack.share: 2": {Kind: None, Share: 2},
		"attack.strength: -1": {Kind: None, Strength: -1}, "attack.poison": {Kind: None, Poison: math.NaN()}} {
		goldentest.WantError(t, c.Check(), say)
	}
}
