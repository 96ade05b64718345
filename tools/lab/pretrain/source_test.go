package pretrain

import (
	"context"
	"image"
	"image/color"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/data/sets"
	"promptfed/models/preprocess"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// Counts computed by hand: for 10 with shares 0.5, 0.25, 0.25 the integer parts are 5, 2, 2, and the first of the equal
// remainders gets the last one.
func TestApportion(t *testing.T) {
	if got := apportion(10, []float64{2, 1, 1}); !slices.Equal(got, []int{5, 3, 2}) {
		t.Errorf("got %v, want [5 3 2]", got)
	}
	if got := apportion(7, []float64{1, 0.01}); !slices.Equal(got, []int{7, 0}) {
		t.Errorf("got %v, want [7 0]", got)
	}
}

func TestWord(t *testing.T) {
	for _, c := range [][3]string{
		{"a photo of {a}.", "cat", "a photo of a cat."}, {"{a}", "apple", "an apple"}, {"the digit {}", "8",
			"the digit 8"},
	} {
		if got := word(c[0], c[1]); got != c[2] {
			t.Errorf("%q with %q gives %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// A 3x3 picture moved by hand: every result must be a shift by at most one pixel, mirrored or not, with the border
// repeated.
func TestMoved(t *testing.T) {
	plane := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	other := []float32{9, 8, 7, 6, 5, 4, 3, 2, 1} // moves alike: both add up to 10
	pixels := slices.Concat(plane, other, plane)
	s := Source{Mirror: true, Shift: 1}
	want := map[string]bool{}
	at := func(i int) int { return min(max(i, 0), 2) }
	for _, mirror := range []bool{false, true} {
		for dy := -1; dy <= 1; dy++ {
			for dx := -1; dx <= 1; dx++ {
				var b strings.Builder
				for y := range 3 {
					for x := range 3 {
						from := at(x - dx)
						if mirror {
							from = 2 - from
						}
						b.WriteByte(byte('0' + int(plane[at(y-dy)*3+from])))
					}
				}
				want[b.String()] = true
			}
		}
	}
	rng, seen := rand.New(rand.NewPCG(1, 1)), map[string]bool{}
	for range 400 {
		out := s.moved(pixels, rng)
		for i, v := range out[:9] {
			if v+out[9+i] != 10 || v != out[18+i] {
				t.Fatalf("channels moved apart: %v", out)
			}
		}
		var b strings.Builder
		for _, v := range out[:9] {
			b.WriteByte(byte('0' + int(v)))
		}
		if !want[b.String()] {
			t.Fatalf("%s is no shift of %v", b.String(), plane)
		}
		seen[b.String()] = true
	}
	if len(seen) != len(want) {
		t.Errorf("%d of %d ways to move were drawn", len(seen), len(want))
	}
}

// folder writes n images of each of two classes into one domain, image i filled with grey i.
func folder(t *testing.T, n int) string {
	root := t.TempDir()
	for _, class := range []string{"cat", "owl"} {
		for i := range n {
			img := image.NewGray(image.Rect(0, 0, 8, 8))
			for p := range img.Pix {
				img.Pix[p] = uint8(10 * i)
			}
			img.SetGray(0, 0, color.Gray{Y: uint8(10 * i)})
			filetest.PNG(t, filepath.Join(root, "photo", class, string(rune('a'+i))+".png"), img)
		}
	}
	return root
}

// Of ten images of a class, sets without a test split use the first eight for training; with Keep 4 these are 0 to 3.
func TestKeep(t *testing.T) {
	s := Source{Share: 1, Keep: 4, Data: sets.Config{Set: "folder", Root: folder(t, 20)},
		Captions: map[string][]string{"any": {"a photo of {a}"}}}
	l, err := openLister(s, preprocess.CLIP(8))
	goldentest.NoError(t, err)
	var got []string
	for _, e := range l.list {
		got = append(got, strings.TrimSuffix(e.ID, ".png"))
	}
	slices.Sort(got)
	var want []string
	for _, class := range []string{"photo/cat/", "photo/owl/"} {
		for _, i := range []int{0, 1, 2, 3, 10, 11, 12, 13} {
			want = append(want, class+string(rune('a'+i)))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
}

// The name of a domain matches with any capitals, since keys of configuration files are in lower case, and with spaces
// or underscores; templates of no domain are an error.
func TestCaptionsOfDomains(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"Real World", "Art"} {
		goldentest.NoError(t, os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join(folder(t, 5), "photo"))))
	}
	s := Source{Share: 1, Data: sets.Config{Set: "folder", Root: root}, Captions: map[string][]string{
		"any": {"x {}"}, "art": {"art of {}"}, "real_world": {"a photo of {}"}}}
	l, err := openLister(s, preprocess.CLIP(8))
	if err != nil || !slices.Equal(l.set.Domains, []string{"Art", "Real World"}) {
		t.Fatal(err, l)
	}
	if l.templates[0][0] != "art of {}" || l.templates[1][0] != "a photo of {}" {
		t.Errorf("templates %q", l.templates)
	}
	s.Captions["phto"] = []string{"{}"}
	_, err = openLister(s, preprocess.CLIP(8))
	goldentest.WantError(t, err, "no domain phto; the domains are Art, Real World")
}

func small(t *testing.T, out string) Config {
	c := Defaults()
	c.Name, c.Out, c.Size, c.Patch, c.EmbedDim, c.Checkpoint = "small", out, 16, 8, 8, 2
	c.Text, c.Image = Tower{16, 1, 1}, Tower{16, 1, 1}
	c.Train = Training{Steps: 4, Batch: 12, LR: 1e-3, Decay: 0.1, Beta2: 0.98, Warmup: 1, ClipNorm: 1}
	c.Sources = []Source{{Share: 2, Difficulty: [2]float64{0, 0.5}, Data: sets.Config{Set: "synthetic"}},
		{Share: 1, Shift: 1, Mirror: true, Data: sets.Config{Set: "folder", Root: folder(t, 10)},
			Captions: map[string][]string{"photo": {"a photo of {a}", "{a}"}}}}
	return c
}

// A source that does not name its set is refused; synthetic images must be selected by name.
func TestSourceNamesItsImages(t *testing.T) {
	c := small(t, t.TempDir())
	goldentest.NoError(t, c.Validate())
	c.Sources[0].Data.Set = ""
	goldentest.WantError(t, c.Validate(), "sources[0]", "data.set: missing")
}

// A batch is a function of seed and step, not of the number of workers.
func TestBatch(t *testing.T) {
	cfg := small(t, t.TempDir())
	tok, err := cfg.vocabulary()
	goldentest.NoError(t, err)
	b, err := newBatches(cfg, tok)
	goldentest.NoError(t, err)
	one, err := b.batch(context.Background(), 3, 1)
	goldentest.NoError(t, err)
	many, err := b.batch(context.Background(), 3, 4)
	goldentest.NoError(t, err)
	other, err := b.batch(context.Background(), 4, 1)
	goldentest.NoError(t, err)
	if !slices.Equal(one[inPixels].Data, many[inPixels].Data) || !slices.Equal(one[inTokens].Ints,
		many[inTokens].Ints) {
		t.Error("the batch depends on the number of workers")
	}
	if slices.Equal(one[inPixels].Data, other[inPixels].Data) {
		t.Error("two steps have the same batch")
	}
	for i, end := range one[inEnd].Ints {
		row := one[inTokens].Row(i).Ints
		if row[0] != int64(tok.SOS()) || row[end] != int64(tok.EOT()) {
			t.Errorf("caption %d: tokens %v do not end at %d", i, row, end)
		}
	}
}

// The captions of a source are free keys, in which capitals do not count.
func TestCaptionsAreUnambiguous(t *testing.T) {
	c, path := Defaults(), filepath.Join(t.TempDir(), "c.yaml")
	text := "sources:\n- share: 1\n  captions:\n    Art: [a]\n    art: [b]\n"
	filetest.Write(t, path, text)
	err := configs.DecodeFile(&c, path, nil)
	goldentest.WantError(t, err, "sources[0].captions.art is given twice")
}
