package samples_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/engine/metrics"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/samples"
	"promptfed/tools/promptfed/command"
)

var cache string

func TestMain(m *testing.M) { datatest.Main(m, &cache) }

// photo writes an image of 200 x 100 pixels, or 20 x 10, of one colour.
func photo(t *testing.T, path string, side int, c color.Color) {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, side, side/2))
	for i := range side * side / 2 {
		img.Set(i%side, i/side, c)
	}
	filetest.PNG(t, path, img)
}

// trained runs promptfl with two clients on a folder with 90 test images, and returns its run and the folder.
func trained(t *testing.T) (results.Run, string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", cache)
	library, _, err := ort.Library()
	goldentest.NoError(t, err)
	t.Setenv("ONNXRUNTIME_LIB", library)
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "run")
	for c, class := range []string{"cat", "dog", "owl"} {
		for i := range 8 {
			photo(t, filepath.Join(root, "train", class, fmt.Sprintf("%d.png", i)), 20,
				color.RGBA{uint8(80 * c), uint8(10 * i), 90, 255})
		}
		for i := range 30 {
			photo(t, filepath.Join(root, "test", class, fmt.Sprintf("%d.png", i)), 20+180*(i%2),
				color.RGBA{uint8(80*c + i), uint8(3 * i), 90, 255})
		}
	}
	here, err := os.Getwd()
	goldentest.NoError(t, err)
	relative, err := filepath.Rel(here, root)
	goldentest.NoError(t, err)
	conf := filepath.Join(t.TempDir(), "photos.yaml")
	text := "name: photos\nmethod: promptfl\nbackbones: [tiny-vit-b16]\ndata: {set: folder, root: " + relative +
		", shots: 4, duplicates: keep}\npartition: {kind: dirichlet, beta: 0.5, clients: 2}\n" +
		"train: {rounds: 1, lr: 0.1}\n"
	filetest.Write(t, conf, text)
	args := []string{"run", conf, "--out", out, "--quiet"}
	if code := command.Execute(t.Context(), args); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	all, err := results.Load(out)
	goldentest.NoError(t, err)
	t.Chdir(t.TempDir()) // the relative root of the configuration names no folder from here
	return *all.Groups[0].Runs[0], root
}

// The predictions for all test images of a client have the accuracy that the run measured. Images are scaled down, and
// not shown when they have changed or are gone.
func TestSamples(t *testing.T) {
	run, root := trained(t)
	e := run.Rounds[0].Evaluations
	for view, e := range map[string]*metrics.Evaluation{"global": e.Global, "personal": e.Personal, "": e.Global} {
		for k, accuracy := range e.PerClient {
			s, err := samples.Of(t.Context(), run, k, view)
			goldentest.NoError(t, err)
			if s.View != cmp.Or(view, "global") || s.Tested != s.Of || s.Of < 1 ||
				math.Abs(float64(s.Correct)/float64(s.Of)-accuracy) > 1e-9 {
				t.Errorf("client %d, %s: %d of %d right, the run measured %v", k, view, s.Correct, s.Of, accuracy)
			}
			check(t, s)
		}
	}
	for want, ask := range map[string]func() error{
		"client 2 does not exist: the run has clients 0 to 1": func() error { return asked(t, run, 2, "") },
		"expected global or personal":                         func() error { return asked(t, run, 0, "other") },
	} {
		goldentest.WantError(t, ask(), want)
	}
	photo(t, filepath.Join(root, "test", "cat", "0.png"), 20, color.White)
	goldentest.WantErrorOf(t, "a changed image", asked(t, run, 0, ""), "no longer here: "+root+" has others")
	goldentest.NoError(t, os.RemoveAll(root))
	goldentest.WantErrorOf(t, "without images", asked(t, run, 0, ""), "cannot be read here")
}

func asked(t *testing.T, run results.Run, client int, view string) error {
	_, err := samples.Of(t.Context(), run, client, view)
	return err
}

// check checks the order and the images.
func check(t *testing.T, s *samples.Samples) {
	t.Helper()
	wrong := func(a samples.Sample) bool { return a.Class != a.Predicted }
	first := slices.IndexFunc(s.Images, func(a samples.Sample) bool { return !wrong(a) })
	if first < 0 {
		first = len(s.Images)
	}
	if first != min(24, s.Of-s.Correct) || len(s.Images)-first != min(24, s.Correct) {
		t.Errorf("%d wrong and %d right images are shown, of %d of %d right", first, len(s.Images)-first, s.Correct,
			s.Of)
	}
	for i, a := range s.Images {
		if i > 0 && i < first && a.Probability > s.Images[i-1].Probability ||
			i > first && a.Probability < s.Images[i-1].Probability || wrong(a) != (i < first) {
			t.Errorf("image %d is not in order: %s as %s, %v", i, a.Class, a.Predicted, a.Probability)
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(a.Source, "data:image/png;base64,"))
		goldentest.NoError(t, err)
		img, err := png.Decode(bytes.NewReader(raw))
		goldentest.NoError(t, err)
		if size := img.Bounds().Size(); size != image.Pt(20, 10) && size != image.Pt(160, 80) {
			t.Errorf("an image has %v pixels", size)
		}
	}
}
