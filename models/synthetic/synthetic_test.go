package synthetic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

func all() []string { return slices.Concat(Classes(), Textures()) }

// sample is a sample of the default style.
func sample(class, domain string, seed uint64) Sample {
	s, err := New(class, domain, seed, Default())
	if err != nil {
		panic(err)
	}
	return s
}

func TestNamesAreDistinct(t *testing.T) {
	names := slices.Sorted(slices.Values(all()))
	if len(slices.Compact(names)) != len(Classes())+len(Textures()) {
		t.Fatalf("a class name occurs twice: %v", names)
	}
	if len(Classes()) < 24 || len(Domains()) < 4 || len(Textures()) < 8 {
		t.Fatalf("%d classes, %d domains, %d textures", len(Classes()), len(Domains()), len(Textures()))
	}
}

// TestSameArgumentsSameBytes draws every class in every domain twice, in opposite orders, which would reveal hidden
// state. The digest fixes the pictures on which the bundled backbones were trained (computed by this program on amd64).
func TestSameArgumentsSameBytes(t *testing.T) {
	render := func(c, d string) []byte {
		img, err := sample(c, d, 7).Image(32)
		goldentest.NoError(t, err)
		return img.Pix
	}
	sum := sha256.New()
	var first [][]byte
	for _, c := range all() {
		for _, d := range Domains() {
			first = append(first, render(c, d))
			sum.Write(first[len(first)-1])
		}
	}
	i := len(first)
	for _, c := range slices.Backward(all()) {
		for _, d := range slices.Backward(Domains()) {
			i--
			if !bytes.Equal(first[i], render(c, d)) {
				t.Fatalf("%s in %s: two drawings differ", c, d)
			}
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); runtime.GOARCH == "amd64" && got != goldenDigest {
		t.Errorf("the pictures changed: digest %s, was %s", got, goldenDigest)
	}
}

func TestSeedsDiffer(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, c := range []string{"star", "fish", "stripes"} {
		for _, d := range Domains() {
			for seed := range uint64(20) {
				s, err := New(c, d, seed, Default())
				goldentest.NoError(t, err)
				img, err := s.Image(32)
				goldentest.NoError(t, err)
				h := sha256.Sum256(img.Pix)
				if other, ok := seen[h]; ok {
					t.Fatalf("%s %s %d equals %s", c, d, seed, other)
				}
				seen[h] = c + " " + d
			}
		}
	}
}

func TestErrorsListWhatThereIs(t *testing.T) {
	_, err := New("blob", "photo", 0, Default())
	goldentest.WantErrorOf(t, "unknown class", err, `"blob"`, "crescent moon")
	_, err = New("star", "fresco", 0, Default())
	goldentest.WantErrorOf(t, "unknown domain", err, "mosaic")
	for _, size := range []int{-1, 0, 3, maxSize + 1} {
		if _, err := sample("star", "photo", 0).Image(size); err == nil {
			t.Errorf("size %d: no error", size)
		}
	}
	if _, err := (Sample{}).Image(64); err == nil {
		t.Error("empty sample: no error")
	}
	for _, size := range []int{4, 5, 17, 300} {
		for _, d := range Domains() {
			if _, err := sample("cat", d, 1).Image(size); err != nil {
				t.Errorf("%s at size %d: %v", d, size, err)
			}
		}
	}
}

// TestFigureIsThere checks with the easiest and the hardest style that the figure covers a visible part of the image
// but not all of it, and that its colour differs from that of the background.
func TestFigureIsThere(t *testing.T) {
	for _, level := range []float64{0, 1} {
		for _, c := range Classes() {
			for seed := range uint64(8) {
				s, err := New(c, "cartoon", seed, Level(level))
				goldentest.NoError(t, err)
				if s.Colour == s.Ground {
					t.Errorf("%s seed %d: %s on %s", c, seed, s.Colour, s.Ground)
				}
				d, _ := named(domains, "cartoon")
				v := s.scene(d, 64)
				n := 0
				for _, m := range v.silhouette() {
					n += int(m)
				}
				if share := float64(n) / 255 / 64 / 64; share < 0.02 || share > 0.85 {
					t.Errorf("%s seed %d level %g covers %.0f %% of the image", c, seed, level, 100*share)
				}
			}
		}
	}
}

// TestClassesCanBeToldApart: the nearest class mean of clean, centred cartoons, learned from 12 samples of each class,
// is right far more often than the chance of 1 in 42. It uses pixels, so any encoder should exceed it.
func TestClassesCanBeToldApart(t *testing.T) {
	style := Level(0)
	const size, train, test = 16, 12, 4
	features := func(c string, seed uint64) []float64 {
		s, err := New(c, "silhouette", seed, style)
		goldentest.NoError(t, err)
		img, err := s.Image(size)
		goldentest.NoError(t, err)
		out := make([]float64, size*size)
		lo, hi := 255.0, 0.0
		for i := range out {
			out[i] = float64(img.Pix[4*i]) + float64(img.Pix[4*i+1]) + float64(img.Pix[4*i+2])
			lo, hi = min(lo, out[i]), max(hi, out[i])
		}
		for i := range out {
			out[i] = (out[i] - lo) / (hi - lo + 1)
		}
		return out
	}
	means := make([][]float64, len(Classes()))
	for k, c := range Classes() {
		means[k] = make([]float64, size*size)
		for seed := range uint64(train) {
			for i, x := range features(c, seed) {
				means[k][i] += x / train
			}
		}
	}
	right := 0
	for k, c := range Classes() {
		for seed := range uint64(test) {
			f := features(c, 1000+seed)
			best, at := 1e18, -1
			for j, m := range means {
				d := 0.0
				for i := range f {
					d += (f[i] - m[i]) * (f[i] - m[i])
				}
				if d < best {
					best, at = d, j
				}
			}
			if at == k {
				right++
			}
		}
	}
	share := float64(right) / float64(test*len(Classes()))
	t.Logf("nearest mean: %.0f %% right", 100*share)
	if share < 0.5 {
		t.Errorf("nearest mean names only %.0f %% right", 100*share)
	}
}

// TestCaptionsTellTheTruth checks every caption against the attributes of its sample.
func TestCaptionsTellTheTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range all() {
		for _, d := range Domains() {
			distinct := map[string]bool{}
			for seed := range uint64(30) {
				s, err := New(c, d, seed%3, Default())
				goldentest.NoError(t, err)
				text := s.Caption(rng)
				distinct[text] = true
				tx, pattern := named(textures, c)
				if !strings.Contains(text, c) && !(pattern && strings.Contains(text, tx.adjective)) {
					t.Fatalf("%q does not name %s", text, c)
				}
				if strings.Contains(text, "  ") || strings.Contains(text, " .") || strings.TrimSpace(text) != text {
					t.Fatalf("%q has odd spaces", text)
				}
				words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '.' })
				for _, colour := range names(palette) {
					if slices.Contains(words, colour) && colour != s.Colour && colour != s.Ground {
						t.Fatalf("%q names %s: the sample is %s on %s", text, colour, s.Colour, s.Ground)
					}
				}
				if strings.Contains(text, "background") && pattern {
					t.Fatalf("%q: nothing shows behind a pattern", text)
				}
				for _, o := range textures {
					if slices.Contains(words, o.adjective) && s.Texture != o.name {
						t.Fatalf("%q: the texture is %q", text, s.Texture)
					}
				}
				for i, w := range words[:len(words)-1] {
					if vowel := strings.ContainsRune("aeiou", rune(words[i+1][0])); w == "a" && vowel || w == "an" &&
						!vowel {
						t.Fatalf("%q: wrong article", text)
					}
				}
			}
			if len(distinct) < 8 {
				t.Errorf("%s in %s: only %d different captions in 30", c, d, len(distinct))
			}
		}
	}
}

func BenchmarkDraw64(b *testing.B) {
	classes := all()
	for _, d := range Domains() {
		b.Run(d, func(b *testing.B) {
			for i := range b.N {
				if _, err := sample(classes[i%len(classes)], d, uint64(i)).Image(64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestPatternHasItsColour: the pixels in the middle of a pattern's second phase have the colour that a caption names.
func TestPatternHasItsColour(t *testing.T) {
	for _, class := range Textures() {
		for seed := range uint64(6) {
			s, err := New(class, "cartoon", seed, Level(0))
			goldentest.NoError(t, err)
			d, _ := named(domains, "cartoon")
			v := s.scene(d, 64)
			d.render(v)
			c, _ := named(palette, s.Colour)
			want := c.value
			for i := range 64 * 64 {
				if v.weave.level(i%64, i/64) < 256 {
					continue
				}
				for ch := range 3 {
					if d := abs(int32(v.img.Pix[4*i+ch]) - want[ch]); d > 20 {
						t.Fatalf("%s seed %d: pixel %d is %v, not %s", class, seed, i, v.img.Pix[4*i:4*i+3], s.Colour)
					}
				}
			}
		}
	}
}
