package cifar

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/federation/data"
	"promptfed/federation/data/formats/pickle"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filestamp"
)

// cifarReader reads the files of one folder.
type cifarReader struct {
	*cifarSet
	cfg source.Config
	dir string
	bin bool // otherwise pickles
	set *data.Set
}

// read reads the set. Without test records, the training records are split four to one, as in folders.
func (r *cifarReader) read(train []string, test string) (*data.Set, error) {
	names, err := r.classNames()
	if err != nil {
		return nil, err
	}

	set := r.set
	set.Classes = source.UnderscoresToSpaces(names[0])
	if len(names) > 1 {
		set.Superclasses = source.UnderscoresToSpaces(names[1])
	}

	set.Coarse = slices.Repeat([]int{-1}, len(set.Classes))
	if len(train) != r.parts {
		set.Notes = append(set.Notes, fmt.Sprintf("%s: found %d of %d training files: %s", r.dir, len(train), r.parts,
			source.FolderNames(train)))
	}

	for _, path := range train {
		list, err := r.file(path)
		if err != nil {
			return nil, err
		}
		set.Train = append(set.Train, list...)
	}

	if test != "" {
		if set.Test, err = r.file(test); err != nil {
			return nil, err
		}
	} else {
		all := set.Train
		set.Train = nil
		set.Notes = append(set.Notes, r.dir+" has no file of test images: two of every ten images of each class of "+
			"the training files are held out for testing")
		slices.SortStableFunc(all, func(a, b data.Example) int { return a.Label - b.Label })
		source.AddHeldOut(set, all)
	}

	for i := range set.Coarse {
		if set.Coarse[i] < 0 && r.coarse != nil && slices.Equal(names[0], r.known[0]) {
			set.Coarse[i] = r.coarse[i]
		}
	}

	r.notes(set, r.dir)
	return set, nil
}

// classNames returns the names in the folder, or else the published names.
func (r *cifarReader) classNames() ([][]string, error) {
	out := slices.Clone(r.known)
	files, keys, read := r.texts, r.texts, lineNames
	if !r.bin {
		files, keys, read = []string{r.meta, r.meta}, r.names, pickledNames
	}

	for i, key := range keys {
		path := filepath.Join(r.dir, files[i])
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		names, err := read(path, key)
		if err == nil && (len(names) == 0 || len(names) > 256) {
			err = fmt.Errorf("%s: %s has %d class names: expected 1 to 256, one per line or entry", path, key,
				len(names))
		}
		if err != nil {
			return nil, err
		}
		out[i] = names
	}

	return out, nil
}

func lineNames(path, _ string) (names []string, err error) {
	return names, source.EachLine(path, func(_, line string) error {
		names = append(names, line)
		return nil
	})
}

func pickledNames(path, key string) (names []string, err error) {
	err = source.WithFile(path, func(file *os.File, info fs.FileInfo) error {
		batch, err := readPickle(file, info)
		if err != nil {
			return err
		}

		v, err := batch.get(key)
		if err != nil {
			return err
		}

		list, err := pickle.Values(file, v)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}

		for _, e := range list {
			name, _ := e.(string)
			if name == "" {
				return fmt.Errorf("%s holds %#v: expected class names", key, e)
			}
			names = append(names, name)
		}

		return nil
	})

	return names, err
}

// file returns the images of one file. With data.corrupt: skip, a binary file may end early.
func (r *cifarReader) file(path string) ([]data.Example, error) {
	pixels := &source.Pixels{Path: path, Width: cifarSide, Height: cifarSide, Channels: 3}
	var fine, coarse []int
	if err := source.WithFile(path, func(file *os.File, info fs.FileInfo) (err error) {
		pixels.Stamp = filestamp.Of(info)
		if !r.bin {
			fine, coarse, err = r.pickleFile(file, info, pixels)
			return err
		}
		if fine, coarse, err = r.binFile(file, pixels); err != nil && r.cfg.Corrupt == data.Skip && len(fine) > 0 {
			r.set.Skipped = append(r.set.Skipped, data.Skipped{Name: path, Reason: err.Error()})
			err = nil
		}
		return err
	}); err != nil {
		return nil, err
	}

	for i, c := range coarse {
		have := &r.set.Coarse[fine[i]]
		if *have >= 0 && *have != c {
			return nil, fmt.Errorf("%s: record %d: class %q is of superclass %q here and %q before", path, i,
				r.set.Classes[fine[i]], r.set.Superclasses[c], r.set.Superclasses[*have])
		}
		*have = c
	}

	return pixels.Examples(r.cfg.Root, fine, 0)
}

// limits returns the number of classes and, if the set has superclasses, their number.
func (r *cifarReader) limits() []int {
	if r.coarse == nil {
		return []int{len(r.set.Classes)}
	}
	return []int{len(r.set.Classes), len(r.set.Superclasses)}
}

func (r *cifarReader) binFile(file io.Reader, pixels *source.Pixels) (fine, coarse []int, err error) {
	limits := r.limits()
	slices.Reverse(limits) // the superclass comes first
	labels, err := readCIFARLabels(file, limits...)
	heads := len(limits)
	for i := 0; i < len(labels); i += heads {
		fine = append(fine, int(labels[i+heads-1]))
		if heads > 1 {
			coarse = append(coarse, int(labels[i]))
		}
	}

	pixels.Count, pixels.At, pixels.Gap = len(fine), int64(heads), int64(heads)
	return fine, coarse, err
}

// readCIFARLabels returns the label bytes of all records, as many per record as there are limits. If a label exceeds
// its limit or the file ends inside a record, the error names the record, and the labels before it are returned too. It
// uses one byte of memory per label.
func readCIFARLabels(r io.Reader, limits ...int) ([]uint8, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	var out []uint8
	for record := 0; ; record++ {
		var labels [2]uint8
		for i, limit := range limits {
			label, err := buffered.ReadByte()
			if err == io.EOF && i == 0 {
				return out, nil
			}
			if err != nil && err != io.EOF {
				return out, err
			}
			if err == nil && int(label) >= limit {
				return out, fmt.Errorf("record %d has label %d, but there are %d classes: expected a CIFAR binary "+
					"file", record, label, limit)
			}
			labels[i] = label
		}

		if n, err := buffered.Discard(cifarPixels); err != nil {
			return out, fmt.Errorf("record %d ends after %d of %d bytes: the file is truncated, fetch it again", record,
				n+len(limits), cifarPixels+len(limits))
		}

		out = append(out, labels[:len(limits)]...)
	}
}

func (r *cifarReader) pickleFile(file *os.File, info fs.FileInfo, pixels *source.Pixels) (fine, coarse []int,
	err error) {
	batch, err := readPickle(file, info)
	if err != nil {
		return nil, nil, err
	}

	v, err := batch.get("data")
	if err != nil {
		return nil, nil, err
	}

	a, ok := v.(*pickle.Array)
	if !ok || len(a.Shape) != 2 || a.Shape[1] != cifarPixels {
		return nil, nil, fmt.Errorf("\"data\" is not a numpy array of N x %d bytes", cifarPixels)
	}

	pixels.Count = a.Shape[0]
	if err := pixels.SetArray(a); err != nil {
		return nil, nil, err
	}

	lists := [2][]int{}
	for i, limit := range r.limits() {
		v, err := batch.get(r.labels[i])
		if err != nil {
			return nil, nil, err
		}

		numbers, err := pickle.Numbers(file, v)
		if err != nil {
			return nil, nil, err
		}

		if len(numbers) != pixels.Count {
			return nil, nil, fmt.Errorf("%d images but %d %s", pixels.Count, len(numbers), r.labels[i])
		}

		for j, n := range numbers {
			if n < 0 || n >= float64(limit) {
				return nil, nil, fmt.Errorf("record %d has label %v, but there are %d classes", j, n, limit)
			}
			lists[i] = append(lists[i], int(n))
		}
	}

	return lists[0], lists[1], nil
}

// cifarPickle is a pickled dictionary.
type cifarPickle types.Dict

func readPickle(file io.ReaderAt, info fs.FileInfo) (cifarPickle, error) {
	v, err := pickle.Read(file, 0, info.Size())
	if err != nil {
		return nil, err
	}

	d, ok := v.(*types.Dict)
	if !ok {
		return nil, fmt.Errorf("the pickle holds %T: expected a dictionary", v)
	}

	return cifarPickle(*d), nil
}

// get returns the value of a key, which Python 2 wrote as bytes.
func (p cifarPickle) get(key string) (any, error) {
	for _, e := range p {
		if k, ok := pickle.Text(e.Key); ok && k == key {
			return e.Value, nil
		}
	}
	return nil, fmt.Errorf("the pickle has no %q: expected a batch of CIFAR's Python version", key)
}
