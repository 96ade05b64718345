package features_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/bundle/exported"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// bound is the CPU in place of n devices, or the provider of make test-cuda.
func bound(n int) ort.Options {
	if o := (ort.Options{}).WithProvider(); o.Provider != ort.CPU {
		return o
	}
	return ort.Options{Bind: true, Devices: n}
}

// near compares with the features of the CPU's own batches.
func near(t *testing.T, what string, got, want *tensor.Tensor, tolerance float64) {
	t.Helper()
	tolerance = orttest.Tolerance(tolerance)
	if !slices.Equal(got.Shape, want.Shape) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i, v := range want.Data {
		if d := math.Abs(float64(v - got.Data[i])); !(d <= tolerance*max(1, math.Abs(float64(v)))) {
			t.Errorf("%s: element %d is %v, want %v", what, i, got.Data[i], v)
			return
		}
	}
}

// On a device, with packed pixels and calls of other sizes, an image has the features of the CPU, which do not depend
// on the number of devices and decoders, on the other images of a list, and on the empty rows that fill its last batch.
func TestDeviceFeatures(t *testing.T) {
	list := photos(t, 137) // a batch of 128 and one of 9
	for _, name := range []string{"tiny-vit-b32", "tiny-rn50"} {
		b := bundled(t, name)
		for _, what := range []string{method.ImageInput, method.PatchesInput, method.TokensInput} {
			if what == method.TokensInput && b.Tokens() == 0 {
				continue
			}
			build := func(o ort.Options, workers int, list []data.Example) *tensor.Tensor {
				return compute(t, features.Extractor{Session: o, Workers: workers}, features.Request{Bundle: b,
					List: list, What: what})
			}
			want := build(ort.Options{Provider: ort.CPU}, 2, list)
			near(t, name+" "+what, build(bound(1), 3, list), want, 2e-5)
			near(t, name+" "+what+" of two devices", build(bound(2), 1, list), want, 2e-5)
			for _, at := range [][]int{{136}, {5, 130, 2}} {
				got := build(bound(1), 2, data.Pick(list, at))
				near(t, name+" "+what+" beside others", got, want.Rows(at), 2e-5)
			}
		}
	}
}

// by32 is an image tower for 32 images at a time.
type by32 struct{ bundle.Towers }

func (by32) Batch() int { return 32 }

// Exported towers have the same features on a device too, also one for a fixed number of images, and one for a fixed
// number far above the list's.
func TestExportedTowerOnDevice(t *testing.T) {
	bundle.RegisterFormat(exported.Format(func(*onnx.ModelProto, string, tensor.Map) (tensor.Map, error) {
		return nil, errors.New("a fixed batch stays")
	}))
	list, fixed := images(t, 11), 0
	for i, name := range []string{"openai-fixed-whole-29-dynamo", "hf-half", "siglip", "siglip"} {
		b, err := bundle.Open(filepath.Join("../../../models/bundle/exported/testdata", name))
		goldentest.NoError(t, err)
		if fixed += b.Batch(); i == 3 {
			b.Towers = by32{b.Towers}
		}
		var both [2]*tensor.Tensor
		for i, o := range []ort.Options{{Provider: ort.CPU}, bound(1)} {
			both[i] = compute(t, features.Extractor{Session: o, Workers: 2}, features.Request{Bundle: b, List: list,
				What: method.ImageInput})
		}
		near(t, name, both[1], both[0], 2e-5)
	}
	if fixed == 0 {
		t.Error("no tower has a fixed batch")
	}
}

// Views of a list follow each other through one tower, and are those of the CPU; pixels pass through none. What the
// cache holds is not computed again, whatever the number of devices.
func TestDeviceViews(t *testing.T) {
	b, list := small(t), images(t, 150)
	computed := 0
	x := features.Extractor{Cache: data.Cache{Dir: t.TempDir()}, Session: bound(2), Workers: 2, Seed: 3,
		Progress: func(_ string, done, total int) {
			if computed++; done != (computed-1)%150+1 || total != 150 {
				t.Errorf("%d of %d images after %d", done, total, computed)
			}
		}}
	got := extract(t, x, b, list, 3)
	want := extract(t, features.Extractor{Cache: data.Cache{Dir: t.TempDir()}, Session: ort.Options{Provider: ort.CPU},
		Workers: 2, Seed: 3}, b, list, 3)
	for i := range want {
		near(t, "a view", got[i], want[i], 1e-3)
	}
	if computed != 3*150 {
		t.Errorf("%d images", computed)
	}
	x.Session = bound(1)
	x.Progress = func(string, int, int) { t.Error("computed again") }
	extract(t, x, b, list, 3)
	rows, err := features.Extractor{Cache: data.Cache{Dir: t.TempDir()}, Session: bound(1)}.Rows(t.Context(),
		features.Request{Bundle: b, List: list[:9], What: method.PixelsInput})
	goldentest.NoError(t, err)
	if err := rows[0].Close(); err != nil {
		t.Error(err)
	}
}

// An image that cannot be read ends the computation with its name, after all whole batches before it were written: 128
// images, on the CPU 144 in shards of 64.
func TestBrokenImageInTheMiddle(t *testing.T) {
	b, list := small(t), images(t, 400)
	filetest.Write(t, list[150].Path, "no image")
	for name, o := range map[string]ort.Options{"host": {Provider: ort.CPU}, "device": bound(1), "devices": bound(2)} {
		dir, last := t.TempDir(), 0
		_, err := features.Extractor{Cache: data.Cache{Dir: dir}, Session: o, Workers: 2,
			Progress: func(_ string, done, _ int) { last = done }}.Rows(t.Context(), features.Request{Bundle: b,
			List: list, What: method.ImageInput})
		var bad *data.BadImage
		if !errors.As(err, &bad) || bad.Name != list[150].Path {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(shardsIn(t, dir)); n != 2 || last < 128 || last > 144 {
			t.Errorf("%s: %d shards after %d images", name, n, last)
		}
	}
}

// Kept sessions serve later lists: also after the weights are gone, without which no session opens.
func TestSessionsAreKept(t *testing.T) {
	b, list := small(t), images(t, 3)
	for _, o := range []ort.Options{{Provider: ort.CPU}, bound(1)} {
		var kept features.Sessions
		x := features.Extractor{Session: o, Sessions: &kept}
		compute := func(x features.Extractor, list []data.Example) (*tensor.Tensor, error) {
			return x.Compute(t.Context(), features.Request{Bundle: b, List: list, What: method.ImageInput})
		}
		want, err := compute(x, list)
		goldentest.NoError(t, err)
		hidden := filepath.Join(t.TempDir(), "hidden")
		goldentest.NoError(t, os.Rename(b.Dir, hidden))
		got, err := compute(x, list[1:])
		if err != nil || !slices.Equal(got.Data, want.Data[want.Shape[1]:]) {
			t.Errorf("%v, %v", got, err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
		if _, err := compute(x, list); err == nil {
			t.Error("a closed session is kept")
		}
		goldentest.NoError(t, os.Rename(hidden, b.Dir))
		if _, err := compute(x, list); err != nil {
			t.Errorf("opened again: %v", err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
}

// By hand: a quarter of 8 GB free holds 116 images of 17.2 MB, of which 64 is the largest power of two below; and none
// of more than mostBatch. With one byte too few the next smaller batch is taken.
func TestBatchWithin(t *testing.T) {
	for _, c := range []struct {
		memory, image int64
		want          int
	}{{0, 1, 128}, {-1, 1, 128}, {1, 0, 128}, {2e9, 17_200_000, 64}, {64 * 100, 100, 64}, {64*100 - 1, 100, 32},
		{1 << 40, 100, 256}, {5, 100, 8}} {
		if got := features.BatchWithin(c.memory, c.image); got != c.want {
			t.Errorf("%d bytes, %d an image: %d images, want %d", c.memory, c.image, got, c.want)
		}
	}
}

// With unknown memory, a batch that passes through the tower from memory has 128 images; all of them are finished, also
// with more devices than a device has buffers of pixels.
func TestFromMemory(t *testing.T) {
	var kept features.Sessions
	defer kept.Close()
	finished := 0
	x := features.Extractor{Session: bound(4), Workers: 2, Sessions: &kept,
		Progress: func(string, int, int) { finished++ }}
	n, again, err := x.FromMemory(t.Context(), features.Request{Bundle: small(t), List: images(t, 140),
		What: method.ImageInput})
	goldentest.NoError(t, err)
	if err := again(t.Context(), 5); err != nil || n != 128 || finished != 5*128 {
		t.Errorf("batches of %d images, %d finished, %v", n, finished, err)
	}
}

// By hand: 600 images in 10 s, of which decoding alone takes 3 s, 6 s or 12 s and encoding 6 s. Of 1000 workers on the
// CPU, no more than 3 encode the 20 images in their batches of 8.
func TestRates(t *testing.T) {
	for decoding, want := range map[time.Duration]string{3: "encoding bounds the rate (200",
		6: "encoding bounds the rate (100", 12: "decoding bounds the rate (50"} {
		r := features.Rates{Images: 600, Took: 10 * time.Second, Decoding: decoding * time.Second,
			Encoding: 6 * time.Second}
		want = "features of 600 images took 10 s: " + want + " images/s decoded, 100 encoded)"
		if got := r.String(); got != want || !r.Long() || (features.Rates{Took: time.Second}).Long() {
			t.Errorf("%s, want %s", got, want)
		}
	}
	b, list := small(t), images(t, 20)
	for _, o := range []ort.Options{{Provider: ort.CPU}, bound(1)} {
		var r features.Rates
		x := features.Extractor{Session: o, Workers: 1000, Rates: &r}
		for range 2 {
			if _, err := x.Compute(t.Context(), features.Request{Bundle: b, List: list,
				What: method.ImageInput}); err != nil {
				t.Fatal(err)
			}
		}
		if r.Images != 40 || r.Decoding <= 0 || r.Encoding <= 0 || max(r.Decoding, r.Encoding) > r.Took ||
			o.Provider == ort.CPU && 1000*r.Encoding > 3*r.Took {
			t.Errorf("%+v", r)
		}
	}
}

// By hand, for two workers: 3 s with one piece of work are 1.5 s of both, 1 s with three pieces and 1 s with two are
// 1 s each. The hours without work count nothing.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := features.NewMeter(2)
		busytest.Delay(time.Hour)
		first := m.Begin()
		busytest.Delay(3 * time.Second)
		second, third := m.Begin(), m.Begin()
		busytest.Delay(time.Second)
		first()
		busytest.Delay(time.Second)
		second()
		third()
		busytest.Delay(time.Hour)
		m.Begin()()
		if got := m.Busy(); got != 3500*time.Millisecond {
			t.Error(got)
		}
	})
}
