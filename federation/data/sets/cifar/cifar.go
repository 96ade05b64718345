package cifar

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/folder"
	"promptfed/federation/data/sets/source"
)

// CIFAR's binary layout (Krizhevsky, "The CIFAR-10 dataset") has records of one label byte (CIFAR-100: superclass, then
// class) and 3,072 pixel bytes: 32x32 red, then green, then blue, each row by row. The Python version has the same
// pixels in a numpy array.
const (
	cifarSide   = 32
	cifarPixels = 3 * cifarSide * cifarSide
)

// cifarSet is one of the two sets.
type cifarSet struct {
	title   string
	folders []string // that may hold the files, under data.root
	train   string   // name of the training files; in CIFAR-10 a number follows
	parts   int      // number of training files
	test    string
	meta    string // the pickle of class names
	// In these lists the first entry is for classes and the second, which CIFAR-10 lacks, for superclasses.
	texts  []string // text files of names in the binary version
	names  []string // keys of meta
	labels []string // keys of a batch
	known  [][]string
	coarse []int // superclass of every class
}

var cifar10 = &cifarSet{title: "CIFAR-10", train: "data_batch_", parts: 5, test: "test_batch", meta: "batches.meta",
	folders: []string{"cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10", "cifar-10/cifar-10-batches-bin",
		"cifar-10/cifar-10-batches-py"},
	texts: []string{"batches.meta.txt"}, names: []string{"label_names"}, labels: []string{"labels"},
	known: [][]string{{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}}}

// open reads the binary files, the pickles, or image folders; auto takes the first that exists.
func (c *cifarSet) open(cfg source.Config) (*data.Set, error) {
	f := source.Finder{}
	dirs, err := f.Candidates(cfg.Root, c.folders...)
	if err != nil {
		return nil, err
	}
	for _, layout := range []string{"binary", "pickles", "folders"} {
		if cfg.Layout != layout && cfg.Layout != "auto" {
			continue
		}
		for _, dir := range dirs {
			if layout == "folders" {
				sub, err := f.Candidates(dir, "train", "test")
				if err != nil {
					return nil, err
				}
				if len(sub) == 3 {
					return c.fromFolders(cfg, dir)
				}
				continue
			}
			train, test, err := c.files(dir, layout == "binary")
			if err != nil {
				return nil, err
			}
			if len(train) > 0 {
				r := &cifarReader{cifarSet: c, cfg: cfg, dir: dir, bin: layout == "binary", set: &data.Set{}}
				s, err := r.read(train, test)
				if err == nil {
					s.Layout = layout + " files"
				}
				return s, err
			}
		}
	}
	first := c.train
	if c.coarse == nil {
		first += "1"
	}
	return nil, source.NothingFound(fmt.Errorf("no %s in %s: looked for %s.bin or the pickle %s, and for folders "+
		"train and test with class folders, in it and in %s there: set data.root to the folder that holds them or to "+
		"the one above it", c.title, cfg.Root, first, first, strings.Join(c.folders, ", ")), dirs)
}

// files returns the training files of a folder, in order, and its test file or "".
func (c *cifarSet) files(dir string, bin bool) (train []string, test string, err error) {
	list, err := source.Entries(dir)
	if err != nil {
		return nil, "", err
	}
	for _, e := range list {
		name, isBin := strings.CutSuffix(strings.ToLower(e.Name()), ".bin")
		batch, isTrain := strings.CutPrefix(name, c.train)
		numbered := batch != "" && len(batch) < 4 && strings.Trim(batch, "0123456789") == ""
		switch {
		case e.IsDir() || isBin != bin:
		case name == c.test:
			test = filepath.Join(dir, e.Name())
		case isTrain && numbered == strings.HasSuffix(c.train, "_"):
			train = append(train, filepath.Join(dir, e.Name()))
		}
	}
	slices.SortStableFunc(train, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return train, test, nil
}

// fromFolders reads {train,test}/CLASS/ with the labels of the published set.
func (c *cifarSet) fromFolders(cfg source.Config, dir string) (*data.Set, error) {
	w := &source.Walk{Root: cfg.Root, Skip: cfg.Corrupt == data.Skip}
	top, err := w.Folders(dir)
	if err != nil {
		return nil, err
	}
	top = slices.DeleteFunc(top, func(d string) bool { return source.SplitName(filepath.Base(d)) == "" })
	if err := folder.Splits(w, top, false); err != nil {
		return nil, err
	}
	s, err := w.Set()
	if err != nil {
		return nil, err
	}
	for _, name := range s.Classes {
		super := -1
		if i := slices.IndexFunc(c.known[0],
			func(k string) bool { return source.NormalizeName(k) == source.NormalizeName(name) }); i >= 0 &&
			c.coarse != nil {
			super = c.coarse[i]
		}
		s.Coarse = append(s.Coarse, super)
	}
	if c.coarse != nil {
		s.Superclasses = source.UnderscoresToSpaces(c.known[1])
	}
	c.notes(s, dir)
	s.Layout = folder.LayoutPaths[folder.SplitLayout]
	return s, nil
}

// notes adds a note if the number of classes differs from the published one, and drops superclasses if one of them is
// unknown.
func (c *cifarSet) notes(s *data.Set, dir string) {
	if len(s.Classes) != len(c.known[0]) {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: found %d classes, but %s has %d", dir, len(s.Classes), c.title,
			len(c.known[0])))
	}
	if i := slices.Index(s.Coarse, -1); i >= 0 {
		if c.coarse != nil {
			s.Notes = append(s.Notes, fmt.Sprintf("%s: class %q has no known superclass, so superclasses are not "+
				"used", dir, s.Classes[i]))
		}
		s.Coarse, s.Superclasses = nil, nil
	}
}
