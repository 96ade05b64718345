package domains

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// inDomain returns the examples of a domain.
func inDomain(t *testing.T, s *data.Set, list []data.Example, name string) []data.Example {
	t.Helper()
	d := slices.Index(s.Domains, name)
	if d < 0 {
		t.Fatalf("no domain %q in %q", name, s.Domains)
	}
	var out []data.Example
	for _, e := range list {
		if e.Domain == d {
			out = append(out, e)
		}
	}
	return out
}

// digitFolders returns ten class folders with one image each.
func digitFolders(dir string) []string {
	var out []string
	for k := range 10 {
		out = append(out, fmt.Sprintf("%s/%d/a.png", dir, k))
	}
	return out
}

// TestDigits opens five domains, each in another format and with another spelling of its name.
func TestDigits(t *testing.T) {
	root := datatest.Tree(t, slices.Concat(digitFolders("digits/SYN/imgs_train"), digitFolders("digits/SYN/imgs_valid"),
		[]string{"digits/MNIST-M/mnist_m_train/000.png", "digits/MNIST-M/mnist_m_train/001.png",
			"digits/MNIST-M/mnist_m_test/000.png"})...)
	datatest.Write(t, root, map[string]string{"digits/MNIST-M/mnist_m_train_labels.txt": "001.png 4\n000.png 9\n",
		"digits/MNIST-M/mnist_m_test_labels.txt": "000.png 0\n"})
	datatest.CopyTestdataTo(t, root, map[string]string{
		"digits/MNIST/raw/train-images-idx3-ubyte":   "images-idx3-ubyte",
		"digits/MNIST/raw/train-labels-idx1-ubyte":   "labels-idx1-ubyte",
		"digits/MNIST/raw/t10k-images-idx3-ubyte.gz": "images-idx3-ubyte.gz",
		"digits/MNIST/raw/t10k-labels-idx1-ubyte":    "labels-idx1-ubyte",
		"digits/USPS/usps.bz2":                       "usps.bz2",
		"digits/USPS/usps.t.bz2":                     "usps.bz2",
		"digits/svhn/train_32x32.mat":                "svhn_v7.mat",
		"digits/svhn/test_32x32.mat":                 "svhn_v6.mat",
	})
	for _, from := range []string{root, filepath.Join(root, "digits")} {
		s := mustOpen(t, source.Config{Set: "digits", Root: from})
		if !slices.Equal(s.Domains, []string{"mnist", "mnist_m", "svhn", "syn", "usps"}) || !slices.Equal(s.Classes,
			digitNames) {
			t.Fatalf("%q %q", s.Domains, s.Classes)
		}
		for _, name := range []string{"mnist", "usps", "svhn"} {
			settest.WantImages(t, inDomain(t, s, s.Train, name), name)
			settest.WantImages(t, inDomain(t, s, s.Test, name), name)
		}
		m := inDomain(t, s, s.Train, "mnist_m")
		if got := data.Labels(m); !slices.Equal(got, []int{4, 9}) || filepath.Base(m[0].Path) != "001.png" {
			t.Errorf("mnist_m: %v %+v", got, m)
		}
		if a, b := inDomain(t, s, s.Train, "syn"), inDomain(t, s, s.Test, "syn"); len(a) != 10 || len(b) != 10 ||
			a[7].Label != 7 || !strings.HasSuffix(b[3].ID, "imgs_valid/3/a.png") {
			t.Errorf("syn: %v %v", settest.IDs(a), settest.IDs(b))
		}
		if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "imgs_valid is used as the test split") {
			t.Errorf("notes %q", s.Notes)
		}
		seen := map[string]bool{}
		for _, e := range append(slices.Clone(s.Train), s.Test...) {
			if seen[e.ID] || e.Stamp == "" || filepath.IsAbs(e.ID) || strings.Contains(e.ID, `\`) {
				t.Errorf("ID %q, stamp %q", e.ID, e.Stamp)
			}
			seen[e.ID] = true
		}
	}
}

// TestDigitForms: other names and places of the same files.
func TestDigitForms(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"mnist": {"mnist/train-images.idx3-ubyte": "images-idx3-ubyte",
			"mnist/train-labels.idx1-ubyte": "labels-idx1-ubyte",
			"mnist/t10k-images.idx3-ubyte":  "images-idx3-ubyte", "mnist/t10k-labels.idx1-ubyte": "labels-idx1-ubyte"},
		"mnist in torchvision's folder": {"mnist/MNIST/raw/train-images-idx3-ubyte": "images-idx3-ubyte",
			"mnist/MNIST/raw/train-labels-idx1-ubyte": "labels-idx1-ubyte",
			"mnist/MNIST/raw/t10k-images-idx3-ubyte":  "images-idx3-ubyte",
			"mnist/MNIST/raw/t10k-labels-idx1-ubyte":  "labels-idx1-ubyte"},
		"mnist of FedBN": {"digit_dataset/MNIST/train.pkl": "digits.pkl", "digit_dataset/MNIST/test.pkl": "digits.pkl"},
		"svhn as syn": {"SynthDigits/synth_train_32x32.mat": "svhn_v6.mat",
			"SynthDigits/synth_test_32x32.mat": "svhn_v7.mat"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, source.Config{Set: "digits", Root: datatest.CopyTestdata(t, files)})
			want, _, _ := strings.Cut(name, " ")
			settest.WantImages(t, s.Train, want)
			settest.WantImages(t, s.Test, want)
		})
	}
}

// TestDigitsOneSplit: a domain with only one split is split by HoldOut; every class of 5 images or more is in both
// splits.
func TestDigitsOneSplit(t *testing.T) {
	raw := []byte{0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 1}
	labels := []byte{0, 0, 8, 1, 0, 0, 0, 20}
	for i := range 20 {
		raw, labels = append(raw, byte(10*i)), append(labels, byte(i%2))
	}
	root := t.TempDir()
	datatest.Write(t, root, map[string]string{"mnist/train-images-idx3-ubyte": string(raw),
		"mnist/train-labels-idx1-ubyte": string(labels)})
	s := mustOpen(t, source.Config{Set: "digits", Root: root})
	// Sorted by class, examples 8, 9, 18 and 19 go to test: the last two of each class.
	if !slices.Equal(data.Labels(s.Test), []int{0, 0, 1, 1}) || len(s.Train) != 16 || !strings.HasSuffix(s.Test[0].ID,
		"#00016") || !strings.HasSuffix(s.Test[3].ID, "#00019") || len(s.Notes) != 3 || !strings.Contains(s.Notes[0],
		"one image in five") || len(s.Classes) != 10 {
		t.Errorf("%v %v %q", settest.IDs(s.Train), settest.IDs(s.Test), s.Notes)
	}
}

func TestDigitErrors(t *testing.T) {
	image := func(b ...byte) string { return string(append([]byte{0, 0, 8, 3}, b...)) }
	good := map[string]string{"mnist/train-labels-idx1-ubyte": "\x00\x00\x08\x01\x00\x00\x00\x01\x07"}
	for name, c := range map[string]struct {
		files map[string]string
		words []string
	}{
		"nothing": {map[string]string{"x/a": ""}, []string{"no digits", "mnist, mnist_m, svhn, syn, usps",
			"data.root"}},
		"empty": {map[string]string{"mnist/readme": ""}, []string{"mnist", "images-idx3", "usps.bz2"}},
		"no labels": {map[string]string{"mnist/train-images-idx3-ubyte": image()}, []string{"is alone",
			"labels-idx1-ubyte"}},
		"cut head": {map[string]string{"mnist/train-images-idx3-ubyte": image()[:3]},
			[]string{"head of an idx file"}},
		"another": {map[string]string{"mnist/train-images-idx3-ubyte": "P5 28 28 255 ...."},
			[]string{"idx file of bytes"}},
		"truncated": {map[string]string{"mnist/train-images-idx3-ubyte": image(0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1,
			2, 3)}, []string{"19 of 20 bytes"}},
		"huge": {map[string]string{"mnist/train-images-idx3-ubyte": image(255, 255, 255, 255, 0, 0, 0, 2, 0, 0,
			0, 2)}, []string{"dimension 0 is 4294967295"}},
		"wide": {map[string]string{"mnist/train-images-idx3-ubyte": image(0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2)},
			[]string{"65536 x 2"}},
		"no pixels": {map[string]string{"mnist/train.pkl": "\x80\x02cnumpy.core.numeric\n_frombuffer\n(U\x00" +
			"cnumpy\ndtype\n(U\x02u1tRK\x01K\x00K\x05\x87U\x01CtR]K\x07a\x86."},
			[]string{"train.pkl: images of 0 x 5 pixels"}},
		"one channel": {map[string]string{"mnist/train.pkl": "\x80\x02cnumpy.core.numeric\n_frombuffer\n(U\x02ab" +
			"cnumpy\ndtype\n(U\x02u1tR(K\x01K\x01K\x02K\x01tU\x01CtR]K\x07a\x86."}, // [1,1,2,1]
			[]string{"train.pkl: expected a pair", "[N,H,W,3]"}},
		"two images": {map[string]string{"mnist/train-images-idx3-ubyte": image(0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 5,
			6)}, []string{"2 images but 1 labels"}},
		"label": {map[string]string{"mnist/train-images-idx3-ubyte": image(0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5),
			"mnist/train-labels-idx1-ubyte": "\x00\x00\x08\x01\x00\x00\x00\x01\x0a"},
			[]string{"train-labels-idx1-ubyte: label 0 is 10"}},
		"not gzip": {map[string]string{"mnist/train-images-idx3-ubyte.gz": "abc"}, []string{"gzip", "fetch it again"}},
		// a gzip header (RFC 1952), the head of an idx file in a stored block, and a block of an unknown type
		"damaged gzip": {map[string]string{
			"mnist/train-images-idx3-ubyte": image(0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5),
			"mnist/train-labels-idx1-ubyte.gz": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x00\x08\x00\xf7\xff" +
				"\x00\x00\x08\x01\x00\x00\x00\x01\x07"},
			[]string{"train-labels-idx1-ubyte.gz: damaged after 0 of 1 labels: flate", "fetch it again"}},
		"usps label":  {map[string]string{"usps/usps": "11 1:0\n"}, []string{"usps: line 1", `"11"`}},
		"usps index":  {map[string]string{"usps/usps": "1 1:0\n\n1 257:0\n"}, []string{"line 3", `"257:0"`}},
		"usps value":  {map[string]string{"usps/usps": "1 1:NaN\n"}, []string{"line 1", `"1:NaN"`}},
		"usps empty":  {map[string]string{"usps/usps": "\n"}, []string{"usps: no images"}},
		"usps packed": {map[string]string{"usps/usps.bz2": "1 1:0\n"}, []string{"usps.bz2: damaged at line 1"}},
		"list": {map[string]string{"mnist_m/train.txt": "1.png\n", "mnist_m/train_images/1.png": "x"},
			[]string{"train.txt: line 1", "no label"}},
		"list label": {map[string]string{"mnist_m/train.txt": "1.png 10\n", "mnist_m/train_images/1.png": "x"},
			[]string{"line 1", "label 10"}},
		"list image": {map[string]string{"mnist_m/train.txt": "2.png 1\n", "mnist_m/train_images/1.png": "x"},
			[]string{"line 1", "2.png does not exist", "train_images"}},
		"outside": {map[string]string{"mnist_m/train.txt": "../2.png 1\n", "mnist_m/train_images/1.png": "x"},
			[]string{"line 1", "not a path"}},
		"classes": {map[string]string{"usps/cat/1.png": "x"}, []string{"usps", "no class folders", "0, 1, 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := datatest.Write(t, t.TempDir(), c.files)
			if slices.Contains(strings.Split("cut head,another,truncated,huge,wide,two images,not gzip", ","), name) {
				datatest.Write(t, root, good)
			}
			_, err := openSet(source.Config{Set: "digits", Root: root})
			goldentest.WantError(t, err, c.words...)
		})
	}
}

func FuzzIDX(f *testing.F) {
	for _, name := range []string{"images-idx3-ubyte", "labels-idx1-ubyte"} {
		raw := filetest.Read(f, datatest.Testdata(f, name))
		f.Add(raw)
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(raw)
		w.Close()
		f.Add(z.Bytes())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, name := range []string{"x", "x.gz"} {
			path := filetest.Write(t, filepath.Join(t.TempDir(), name), raw)
			if labels, err := idxLabels(path); err == nil && name == "x" && len(labels)+8 > len(raw) {
				t.Fatalf("%d labels of %d bytes", len(labels), len(raw))
			}
			if x, err := idxImages(path); err == nil && x.Count > 0 && x.Count < 1000 {
				img, err := x.Image(x.Count - 1)
				if name == "x" && err != nil {
					t.Fatal(err)
				}
				if err == nil && (img.Bounds().Dx() != x.Width || img.Bounds().Dy() != x.Height) {
					t.Fatal(img.Bounds())
				}
			}
		}
	})
}

func FuzzUSPS(f *testing.F) {
	f.Add([]byte("1 1:-1 2:1 3:0.5\n10 256:0\n\n"))
	f.Add([]byte("7 :"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		labels, pixels, err := readUSPS(bytes.NewReader(raw))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q is more than a line", err)
			}
			return
		}
		if len(pixels) != 256*len(labels) || len(labels) > bytes.Count(raw, []byte("\n"))+1 {
			t.Fatalf("%d labels, %d pixels", len(labels), len(pixels))
		}
		for _, l := range labels {
			if l < 0 || l > 9 {
				t.Fatal(l)
			}
		}
	})
}
