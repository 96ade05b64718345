package sets

import (
	"fmt"
	"io"
	"os"
)

// svhn reads a MATLAB file with X, images [H,W,3,N] or [H,W,N] of uint8, and y, their labels, where 10 may stand for 0:
// SVHN's cropped digits, and SYN in the same form.
func (p *domainPlace) svhn(dir, split string, _ Config) (*digitSplit, error) {
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

func matDigits(f *os.File, path string) (*pixels, []float64, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	vars, err := matVariables(f)
	if err != nil {
		return nil, nil, err
	}
	v, err := matFind(vars, "X")
	if err != nil {
		return nil, nil, err
	}
	y, err := matFind(vars, "y")
	if err != nil {
		return nil, nil, err
	}
	x := &pixels{path: path, order: planesByColumn, channels: 1, stamp: fileStamp(st)}
	switch d := v.Dims; {
	case len(d) == 4 && d[2] == 3:
		x.height, x.width, x.channels, x.count = d[0], d[1], 3, d[3]
	case len(d) == 3:
		x.height, x.width, x.count = d[0], d[1], d[2]
	}
	if v.kind != 2 || x.height < 1 || x.width < 1 || x.height > 1024 || x.width > 1024 {
		return nil, nil, fmt.Errorf("variable X has dimensions %d and type %d: expected uint8 images [32,32,3,N]",
			v.Dims, v.kind)
	}
	if v.compressed {
		x.inflate = func(f *os.File) (io.Reader, error) {
			r, _, err := v.data(f)
			return r, err
		}
	} else {
		x.at = v.element + v.skip
	}
	labels, err := y.numbers(f)
	if err != nil {
		return nil, nil, err
	}
	if len(labels) != x.count {
		return nil, nil, fmt.Errorf("%d images in X but %d labels in y", x.count, len(labels))
	}
	return x, labels, nil
}
