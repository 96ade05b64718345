package domains

import (
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"promptfed/federation/data/formats/matfile"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
	"promptfed/runtime/filestamp"
)

// idxMax limits the number of labels in a file; MNIST has 60,000.
const idxMax = 1 << 24

// idx reads MNIST's files. Punctuation in names is ignored, so train-images.idx3-ubyte is found too.
func (p *domainPlace) idx(dir, split string) (*digitSplit, error) {
	var paths [2]string
	for i, kind := range []string{"-images-idx3-ubyte", "-labels-idx1-ubyte"} {
		names := []string{split + kind, split + kind + ".gz"}
		if split == "test" {
			names = append([]string{"t10k" + kind, "t10k" + kind + ".gz"}, names...)
		}
		path, err := p.digitFile(dir, false, names...)
		if err != nil {
			return nil, err
		}
		paths[i] = path
	}

	if paths[0] == "" && paths[1] == "" {
		return nil, nil
	}

	if paths[0] == "" || paths[1] == "" {
		return nil, fmt.Errorf("%s is alone: expected images-idx3-ubyte and labels-idx1-ubyte of the same "+
			"split in %s", paths[0]+paths[1], dir)
	}

	x, err := idxImages(paths[0])
	if err != nil {
		return nil, err
	}

	labels, err := idxLabels(paths[1])
	if err != nil {
		return nil, err
	}

	return p.digitPixels(x, paths[1], labels, false)
}

// isGzip reports whether a file is compressed, by its name.
func isGzip(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".gz") }

// openIDX reads the header of an idx file of bytes, compressed or not (LeCun, "The MNIST database"): two zeros, type 8,
// the number of dimensions, then each dimension as four bytes, big-endian. It returns a reader of the rest.
func openIDX(f *os.File, dimensions int) (r io.Reader, dims []int, err error) {
	if r = bufio.NewReader(f); isGzip(f.Name()) {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, nil, fmt.Errorf("not compressed by gzip, or damaged: %w: fetch it again", err)
		}
	}

	head := make([]byte, 4+4*dimensions)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, nil, fmt.Errorf("shorter than the head of an idx file: fetch it again")
	}

	if head[0] != 0 || head[1] != 0 || head[2] != 8 || int(head[3]) != dimensions {
		return nil, nil, fmt.Errorf("starts with % x: expected an idx file of bytes in %d dimensions (00 00 08 %02x)",
			head[:4], dimensions, dimensions)
	}

	dims = make([]int, dimensions)
	for i := range dims {
		n := binary.BigEndian.Uint32(head[4+4*i:])
		if n > idxMax {
			return nil, nil, fmt.Errorf("dimension %d is %d: expected at most %d: fetch it again", i, n, idxMax)
		}
		dims[i] = int(n)
	}

	return r, dims, nil
}

func idxImages(path string) (pixels *source.Pixels, err error) {
	err = source.WithFile(path, func(f *os.File, info fs.FileInfo) error {
		_, dims, err := openIDX(f, 3)
		if err != nil {
			return err
		}

		pixels = &source.Pixels{Path: path, Count: dims[0], Height: dims[1], Width: dims[2], Channels: 1, At: 16,
			Stamp: filestamp.Of(info)}
		if err := pixels.CheckSides(); err != nil {
			return err
		}

		if isGzip(path) {
			pixels.Inflate = func(f *os.File) (io.Reader, error) {
				r, _, err := openIDX(f, 3)
				return r, err
			}
		} else if want := pixels.At + int64(pixels.Count)*int64(pixels.Size()); info.Size() < want {
			return fmt.Errorf("ends after %d of %d bytes: the file is truncated, fetch it again", info.Size(), want)
		}

		return nil
	})
	return pixels, err
}

func idxLabels(path string) (labels []float64, err error) {
	err = source.WithFile(path, func(f *os.File, _ fs.FileInfo) error {
		r, dims, err := openIDX(f, 1)
		if err != nil {
			return err
		}

		raw, err := io.ReadAll(io.LimitReader(r, int64(dims[0])))
		switch {
		case err != nil:
			return fmt.Errorf("damaged after %d of %d labels: %w: fetch it again", len(raw), dims[0], err)
		case len(raw) < dims[0]:
			return fmt.Errorf("ends after %d of %d labels: the file is truncated, fetch it again", len(raw), dims[0])
		}

		labels = convert.Slice(raw, func(b byte) float64 { return float64(b) })
		return nil
	})
	return labels, err
}

const (
	uspsSide = 16
	uspsMax  = 1 << 17 // images in one file; USPS has 7,291
)

// oneFile reads a split from the file that has one of the names, of images and their labels. If tens is set, the label
// 10 means zero.
func (p *domainPlace) oneFile(dir string, tens bool, read func(*os.File, fs.FileInfo) (*source.Pixels, []float64,
	error), names ...string) (*digitSplit, error) {
	path, err := p.digitFile(dir, false, names...)
	if path == "" || err != nil {
		return nil, err
	}

	var pixels *source.Pixels
	var labels []float64
	if err := source.WithFile(path, func(file *os.File, info fs.FileInfo) (err error) {
		if pixels, labels, err = read(file, info); err == nil {
			pixels.Path, pixels.Stamp = path, filestamp.Of(info)
		}
		return err
	}); err != nil {
		return nil, err
	}

	return p.digitPixels(pixels, path, labels, tens)
}

// usps reads the two text files of the LIBSVM collection, with or without bzip2 compression.
func (p *domainPlace) usps(dir, split string) (*digitSplit, error) {
	name := map[string]string{"train": "usps", "test": "usps.t"}[split]
	return p.oneFile(dir, false, func(file *os.File, _ fs.FileInfo) (*source.Pixels, []float64, error) {
		var in io.Reader = bufio.NewReader(file)
		if strings.HasSuffix(strings.ToLower(file.Name()), ".bz2") {
			in = bzip2.NewReader(in)
		}
		labels, raw, err := readUSPS(in)
		return &source.Pixels{Count: len(labels), Width: uspsSide, Height: uspsSide, Channels: 1, Raw: raw}, labels, err
	}, name+".bz2", name)
}

// readUSPS reads lines "label index:value ..." with labels 1 to 10 for the digits 0 to 9, indices 1 to 256 row by row,
// and values from -1 to 1, which become floor((value + 1) / 2 * 255), as in torchvision. A missing index has the value
// 0.
func readUSPS(r io.Reader) (labels []float64, raw []byte, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<15)
	line := 0
	for in.Scan() {
		line++
		fields := strings.Fields(in.Text())
		if len(fields) == 0 {
			continue
		}

		label, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || label < 1 || label > 10 || label != math.Trunc(label) {
			return nil, nil, fmt.Errorf("line %d: label %.80q: expected 1 to 10", line, fields[0])
		}

		if len(labels) == uspsMax {
			return nil, nil, fmt.Errorf("line %d: more than %d images", line, uspsMax)
		}

		var img [uspsSide * uspsSide]byte
		for i := range img {
			img[i] = 127
		}

		for _, field := range fields[1:] {
			at, text, ok := strings.Cut(field, ":")
			i, err := strconv.Atoi(at)
			v, bad := strconv.ParseFloat(text, 64)
			if !ok || err != nil || bad != nil || i < 1 || i > len(img) || !(v >= -1 && v <= 1) {
				return nil, nil, fmt.Errorf("line %d: %.80q: expected an index from 1 to 256, a colon and a value "+
					"from -1 to 1", line, field)
			}
			img[i-1] = byte((v + 1) / 2 * 255)
		}

		labels, raw = append(labels, label-1), append(raw, img[:]...)
	}

	if err := in.Err(); err != nil {
		return nil, nil, fmt.Errorf("damaged at line %d: %w: fetch it again", line+1, err)
	}

	if len(labels) == 0 {
		return nil, nil, fmt.Errorf("no images: expected lines \"label index:value ...\"")
	}

	return labels, raw, nil
}

// svhn reads a MATLAB file with X, images [H,W,3,N] or [H,W,N] of uint8, and y, their labels, in which 10 may mean 0:
// SVHN's cropped digits, and SYN in the same format.
func (p *domainPlace) svhn(dir, split string) (*digitSplit, error) {
	name := split + "_32x32"
	return p.oneFile(dir, true, matDigits, name+".mat", "svhn_"+name+".mat", "synth_"+name+".mat", "syn_"+name+".mat",
		"synth_"+name+"_small.mat")
}

func matDigits(file *os.File, _ fs.FileInfo) (*source.Pixels, []float64, error) {
	vars, err := matfile.Variables(file)
	if err != nil {
		return nil, nil, err
	}

	variable, err := matfile.Find(vars, "X")
	if err != nil {
		return nil, nil, err
	}

	targets, err := matfile.Find(vars, "y")
	if err != nil {
		return nil, nil, err
	}

	pixels := &source.Pixels{Order: source.PlanesByColumn, Channels: 1}
	switch d := variable.Dims; {
	case len(d) == 4 && d[2] == 3:
		pixels.Height, pixels.Width, pixels.Channels, pixels.Count = d[0], d[1], 3, d[3]
	case len(d) == 3:
		pixels.Height, pixels.Width, pixels.Count = d[0], d[1], d[2]
	}

	if variable.Kind != 2 || pixels.CheckSides() != nil {
		return nil, nil, fmt.Errorf("variable X has dimensions %d and type %d: expected uint8 images [32,32,3,N]",
			variable.Dims, variable.Kind)
	}

	if variable.Compressed {
		pixels.Inflate = func(f *os.File) (io.Reader, error) {
			r, _, err := variable.Data(f)
			return r, err
		}
	} else {
		pixels.At = variable.Element + variable.Skip
	}

	labels, err := targets.Numbers(file)
	if err != nil {
		return nil, nil, err
	}

	if len(labels) != pixels.Count {
		return nil, nil, fmt.Errorf("%d images in X but %d labels in y", pixels.Count, len(labels))
	}

	return pixels, labels, nil
}
