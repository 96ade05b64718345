package domains

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"

	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filestamp"
)

// idxMax limits the number of labels in a file; MNIST has 60,000.
const idxMax = 1 << 24

// idx reads MNIST's files. Punctuation in names is ignored, so train-images.idx3-ubyte is found too.
func (p *domainPlace) idx(dir, split string, _ source.Config) (*digitSplit, error) {
	var paths [2]string
	for i, kind := range []string{"images-idx3-ubyte", "labels-idx1-ubyte"} {
		var names []string
		for _, s := range map[string][]string{"train": {"train"}, "test": {"t10k", "test"}}[split] {
			names = append(names, s+"-"+kind, s+"-"+kind+".gz")
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
		return nil, fmt.Errorf("%s: %w", paths[0], err)
	}
	labels, err := idxLabels(paths[1])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", paths[1], err)
	}
	return p.digitPixels(x, labels, false)
}

// readIDX reads the header of an idx file of bytes (LeCun, "The MNIST database"): two zeros, type 8, the number of
// dimensions, then each dimension as four bytes, big-endian.
func readIDX(r io.Reader, dimensions int) ([]int, error) {
	head := make([]byte, 4+4*dimensions)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("shorter than the head of an idx file: fetch it again")
	}
	if head[0] != 0 || head[1] != 0 || head[2] != 8 || int(head[3]) != dimensions {
		return nil, fmt.Errorf("starts with % x: expected an idx file of bytes in %d dimensions (00 00 08 %02x)",
			head[:4], dimensions, dimensions)
	}
	dims := make([]int, dimensions)
	for i := range dims {
		n := binary.BigEndian.Uint32(head[4+4*i:])
		if n > idxMax {
			return nil, fmt.Errorf("dimension %d is %d: expected at most %d", i, n, idxMax)
		}
		dims[i] = int(n)
	}
	return dims, nil
}

// isGzip reports whether a file is compressed, by its name.
func isGzip(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".gz") }

// openIDX reads the header of a file, compressed or not, and returns a reader of the rest.
func openIDX(f *os.File, dimensions int) (r io.Reader, dims []int, err error) {
	if r = bufio.NewReader(f); isGzip(f.Name()) {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, nil, fmt.Errorf("not compressed by gzip: %w", err)
		}
	}
	dims, err = readIDX(r, dimensions)
	return r, dims, err
}

func idxImages(path string) (*source.Pixels, error) {
	f, st, err := source.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, dims, err := openIDX(f, 3)
	if err != nil {
		return nil, err
	}
	x := &source.Pixels{Path: path, Count: dims[0], Height: dims[1], Width: dims[2], Channels: 1, At: 16,
		Stamp: filestamp.Of(st)}
	if x.Height < 1 || x.Width < 1 || x.Height > 1024 || x.Width > 1024 {
		return nil, fmt.Errorf("images of %d x %d pixels: expected 1 to 1024 a side", x.Height, x.Width)
	}
	if isGzip(path) {
		x.Inflate = func(f *os.File) (io.Reader, error) {
			r, _, err := openIDX(f, 3)
			return r, err
		}
	} else if want := x.At + int64(x.Count)*int64(x.Size()); st.Size() < want {
		return nil, fmt.Errorf("ends after %d of %d bytes: the file is truncated, fetch it again", st.Size(), want)
	}
	return x, nil
}

func idxLabels(path string) ([]float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, dims, err := openIDX(f, 1)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(r, int64(dims[0])))
	if err != nil {
		return nil, err
	}
	if len(raw) < dims[0] {
		return nil, fmt.Errorf("ends after %d of %d labels: the file is truncated, fetch it again", len(raw), dims[0])
	}
	out := make([]float64, len(raw))
	for i, b := range raw {
		out[i] = float64(b)
	}
	return out, nil
}
