package sets

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
)

// CIFAR-10's binary layout (https://www.cs.toronto.edu/~kriz/cifar.html): records of one label byte and 3,072 pixel
// bytes: 32x32 red, then green, then blue, each row by row.
const (
	cifarSide   = 32
	cifarPlane  = cifarSide * cifarSide
	cifarRecord = 1 + 3*cifarPlane
)

var cifarClasses = []string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}

// openCIFAR lists the records of data_batch_*.bin as training and of test_batch.bin as test examples. Without a test
// batch, the records sorted by class are split four to one by the rule of folders.
func openCIFAR(cfg Config) (*data.Set, error) {
	list, err := entries(cfg.Root)
	if err != nil {
		return nil, err
	}
	s := &data.Set{Classes: slices.Clone(cifarClasses)}
	if names, err := os.ReadFile(filepath.Join(cfg.Root, "batches.meta.txt")); err == nil {
		s.Classes = strings.FieldsFunc(string(names), func(r rune) bool { return r == '\n' || r == '\r' })
		if len(s.Classes) == 0 || len(s.Classes) > 256 {
			return nil, fmt.Errorf("%s: expected one class name per line, at most 256", filepath.Join(cfg.Root, "batches.meta.txt"))
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	tested := false
	for _, e := range list {
		name := strings.ToLower(e.Name())
		train := strings.HasPrefix(name, "data_batch_") && strings.HasSuffix(name, ".bin")
		test := name == "test_batch.bin"
		if !train && !test {
			continue
		}
		path := filepath.Join(cfg.Root, e.Name())
		examples, err := cifarFile(path, len(s.Classes))
		if err != nil && cfg.Corrupt == data.Skip && examples != nil {
			s.Skipped = append(s.Skipped, data.Skipped{Name: path, Reason: err.Error()})
		} else if err != nil {
			return nil, err
		}
		if test {
			s.Test, tested = examples, true
		} else {
			s.Train = append(s.Train, examples...)
		}
	}
	if len(s.Train) == 0 {
		return nil, fmt.Errorf("%s holds no training records: expected data_batch_1.bin and so on in it", cfg.Root)
	}
	if !tested {
		all := s.Train
		s.Train = nil
		slices.SortStableFunc(all, func(a, b data.Example) int { return a.Label - b.Label })
		holdOut(s, all)
	}
	return s, nil
}

// cifarFile lists the records of one file. On a broken record it returns those before it and an error.
func cifarFile(path string, classes int) ([]data.Example, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	labels, err := ReadCIFARLabels(f, classes)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	stamp := fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())
	out := make([]data.Example, len(labels))
	for i, l := range labels {
		out[i] = data.Example{ID: fmt.Sprintf("%s#%05d", filepath.Base(path), i), Label: int(l), Stamp: stamp,
			Load: func() (image.Image, error) { return cifarImage(path, i) }}
	}
	return out, err
}

// ReadCIFARLabels returns the label of every record. A label outside the classes or a file that ends inside a record is
// an error that says which record, beside the labels before it. Memory is one byte per record.
func ReadCIFARLabels(r io.Reader, classes int) ([]uint8, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	var out []uint8
	for {
		l, err := b.ReadByte()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if int(l) >= classes {
			return out, fmt.Errorf("record %d has label %d, but there are %d classes: expected a CIFAR-10 binary file", len(out), l, classes)
		}
		if n, err := b.Discard(cifarRecord - 1); err != nil {
			return out, fmt.Errorf("record %d ends after %d of %d bytes: the file is truncated, fetch it again", len(out), n+1, cifarRecord)
		}
		out = append(out, l)
	}
}

func cifarImage(path string, record int) (image.Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var raw [3 * cifarPlane]byte
	if _, err := f.ReadAt(raw[:], int64(record)*cifarRecord+1); err != nil {
		return nil, fmt.Errorf("%s: record %d: %w", path, record, err)
	}
	img := image.NewRGBA(image.Rect(0, 0, cifarSide, cifarSide))
	for i := range cifarPlane {
		copy(img.Pix[4*i:], []byte{raw[i], raw[cifarPlane+i], raw[2*cifarPlane+i], 255})
	}
	return img, nil
}
