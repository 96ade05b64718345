package domains

import (
	"bufio"
	"compress/bzip2"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filestamp"
)

const (
	uspsSide = 16
	uspsMax  = 1 << 17 // images in one file; USPS has 7,291
)

// usps reads the two text files of the LIBSVM collection, with or without bzip2 compression.
func (p *domainPlace) usps(dir, split string, _ source.Config) (*digitSplit, error) {
	name := map[string]string{"train": "usps", "test": "usps.t"}[split]
	path, err := p.digitFile(dir, false, name+".bz2", name)
	if path == "" || err != nil {
		return nil, err
	}
	f, st, err := source.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = bufio.NewReader(f)
	if strings.HasSuffix(strings.ToLower(path), ".bz2") {
		in = bzip2.NewReader(in)
	}
	labels, raw, err := readUSPS(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p.digitPixels(&source.Pixels{Path: path, Count: len(labels), Width: uspsSide, Height: uspsSide, Channels: 1,
		Raw: raw, Stamp: filestamp.Of(st)}, labels, false)
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
			return nil, nil, fmt.Errorf("line %d: label %q: expected 1 to 10", line, source.ShortText(fields[0]))
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
				return nil, nil, fmt.Errorf("line %d: %q: expected an index from 1 to 256, a colon and a value from "+
					"-1 to 1", line, source.ShortText(field))
			}
			img[i-1] = byte((v + 1) / 2 * 255)
		}
		labels, raw = append(labels, label-1), append(raw, img[:]...)
	}
	if err := in.Err(); err != nil {
		return nil, nil, fmt.Errorf("line %d: %w", line+1, err)
	}
	if len(labels) == 0 {
		return nil, nil, fmt.Errorf("no images: expected lines \"label index:value ...\"")
	}
	return labels, raw, nil
}
