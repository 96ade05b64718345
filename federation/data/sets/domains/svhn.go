package domains

import (
	"fmt"
	"io"
	"os"

	"promptfed/federation/data/formats/matfile"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filestamp"
)

// svhn reads a MATLAB file with X, images [H,W,3,N] or [H,W,N] of uint8, and y, their labels, in which 10 may mean 0:
// SVHN's cropped digits, and SYN in the same format.
func (p *domainPlace) svhn(dir, split string, _ source.Config) (*digitSplit, error) {
	var names []string
	for _, prefix := range []string{"", "svhn_", "synth_", "syn_"} {
		names = append(names, prefix+split+"_32x32.mat")
	}
	path, err := p.digitFile(dir, false, append(names, "synth_"+split+"_32x32_small.mat")...)
	if path == "" || err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, labels, err := matDigits(f, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p.digitPixels(x, labels, true)
}

func matDigits(f *os.File, path string) (*source.Pixels, []float64, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	vars, err := matfile.Variables(f)
	if err != nil {
		return nil, nil, err
	}
	v, err := matfile.Find(vars, "X")
	if err != nil {
		return nil, nil, err
	}
	y, err := matfile.Find(vars, "y")
	if err != nil {
		return nil, nil, err
	}
	x := &source.Pixels{Path: path, Order: source.PlanesByColumn, Channels: 1, Stamp: filestamp.Of(st)}
	switch d := v.Dims; {
	case len(d) == 4 && d[2] == 3:
		x.Height, x.Width, x.Channels, x.Count = d[0], d[1], 3, d[3]
	case len(d) == 3:
		x.Height, x.Width, x.Count = d[0], d[1], d[2]
	}
	if v.Kind != 2 || x.Height < 1 || x.Width < 1 || x.Height > 1024 || x.Width > 1024 {
		return nil, nil, fmt.Errorf("variable X has dimensions %d and type %d: expected uint8 images [32,32,3,N]",
			v.Dims, v.Kind)
	}
	if v.Compressed {
		x.Inflate = func(f *os.File) (io.Reader, error) {
			r, _, err := v.Data(f)
			return r, err
		}
	} else {
		x.At = v.Element + v.Skip
	}
	labels, err := y.Numbers(f)
	if err != nil {
		return nil, nil, err
	}
	if len(labels) != x.Count {
		return nil, nil, fmt.Errorf("%d images in X but %d labels in y", x.Count, len(labels))
	}
	return x, labels, nil
}
