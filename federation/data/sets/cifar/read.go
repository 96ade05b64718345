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
	file, err := openPickle(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer file.Close()

	v, err := file.get(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	list, err := pickle.Values(file, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", path, key, err)
	}

	for _, e := range list {
		name, _ := e.(string)
		if name == "" {
			return nil, fmt.Errorf("%s: %s holds %#v: expected class names", path, key, e)
		}
		names = append(names, name)
	}

	return names, nil
}

// file returns the images of one file. With data.corrupt: skip, a binary file may end early.
func (r *cifarReader) file(path string) ([]data.Example, error) {
	pixels := &source.Pixels{Path: path, Width: cifarSide, Height: cifarSide, Channels: 3}
	var fine, coarse []int
	var err error
	if r.bin {
		fine, coarse, err = r.binFile(pixels)
	} else {
		fine, coarse, err = r.pickleFile(pixels)
	}

	if err != nil && r.bin && r.cfg.Corrupt == data.Skip && len(fine) > 0 {
		r.set.Skipped = append(r.set.Skipped, data.Skipped{Name: path, Reason: err.Error()})
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
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

func (r *cifarReader) binFile(pixels *source.Pixels) (fine, coarse []int, err error) {
	f, st, err := source.OpenFile(pixels.Path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()

	limits := r.limits()
	slices.Reverse(limits) // the superclass comes first
	labels, err := readCIFARLabels(f, limits...)
	heads := len(limits)
	for i := 0; i < len(labels); i += heads {
		fine = append(fine, int(labels[i+heads-1]))
		if heads > 1 {
			coarse = append(coarse, int(labels[i]))
		}
	}

	pixels.Count, pixels.At, pixels.Gap, pixels.Stamp = len(fine), int64(heads), int64(heads), filestamp.Of(st)
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

func (r *cifarReader) pickleFile(pixels *source.Pixels) (fine, coarse []int, err error) {
	cifarPickle, err := openPickle(pixels.Path)
	if err != nil {
		return nil, nil, err
	}
	defer cifarPickle.Close()

	v, err := cifarPickle.get("data")
	if err != nil {
		return nil, nil, err
	}

	a, ok := v.(*pickle.Array)
	if !ok || len(a.Shape) != 2 || a.Shape[1] != cifarPixels {
		return nil, nil, fmt.Errorf("\"data\" is not a numpy array of N x %d bytes", cifarPixels)
	}

	pixels.Count, pixels.Stamp = a.Shape[0], filestamp.Of(cifarPickle.info)
	if err := pixels.SetArray(a); err != nil {
		return nil, nil, err
	}

	lists := [2][]int{}
	for i, limit := range r.limits() {
		v, err := cifarPickle.get(r.labels[i])
		if err != nil {
			return nil, nil, err
		}

		numbers, err := pickle.Numbers(cifarPickle, v)
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

// cifarPickle is an open file of a pickled dictionary.
type cifarPickle struct {
	*os.File
	info fs.FileInfo
	dict types.Dict
}

func openPickle(path string) (*cifarPickle, error) {
	file, st, err := source.OpenFile(path)
	if err != nil {
		return nil, err
	}

	v, err := pickle.Read(file, 0, st.Size())
	d, ok := v.(*types.Dict)
	if err == nil && !ok {
		err = fmt.Errorf("the pickle holds %T: expected a dictionary", v)
	}

	if err != nil {
		file.Close()
		return nil, err
	}

	return &cifarPickle{file, st, *d}, nil
}

// get returns the value of a key, which Python 2 wrote as bytes.
func (p *cifarPickle) get(key string) (any, error) {
	for _, e := range p.dict {
		if k, ok := pickle.Text(e.Key); ok && k == key {
			return e.Value, nil
		}
	}
	return nil, fmt.Errorf("the pickle has no %q: expected a batch of CIFAR's Python version", key)
}
