package domains

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/formats/pickle"
	"promptfed/federation/data/sets/source"
)

const digitsExpects = "CLASS/ or {train,test}/CLASS/ (0 to 9), {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz], " +
	"{train,test}_32x32.mat, usps.bz2 and usps.t.bz2, or {train,test}_images/ with {train,test}.txt"

var digitNames = []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

var digits = &domainSet{title: "digits", count: 10, partial: true,
	folders: []string{"digits", "digits5", "digit_five", "digit5", "digits_dg", "digit_dataset"},
	inner:   []string{"images"},
	domains: []domainName{{"mnist", nil}, {"mnist_m", nil}, {"svhn", nil},
		{"syn", []string{"synth", "synthdigits", "syndigits", "synthetic_digits"}}, {"usps", nil}},
	classes: digitNames}

// digitSplit is one split of a domain: its images in the order of their file.
type digitSplit struct {
	found   []source.Found
	skipped []data.Skipped
	file    string // source of the images
}

// openDigits reads every domain in the first format that its folder has.
func openDigits(cfg source.Config) (*data.Set, error) {
	place, err := digits.find(cfg)
	if err != nil {
		return nil, err
	}

	walk := cfg.Walk()
	var notes []string
	for i, dir := range place.dirs {
		if dir == "" {
			continue
		}

		name := place.domains[i].name
		train, test, err := place.digitFiles(dir)
		switch {
		case err != nil:
			return nil, err
		case train == nil && test == nil:
			if err := place.domainFolder(walk, dir, dir, name); err != nil {
				return nil, fmt.Errorf("%w; or in %s: %s", err, dir, digitsExpects)
			}
		case train == nil || test == nil:
			only := cmp.Or(train, test)
			notes = append(notes, fmt.Sprintf("%s has only one split: one image in five of every class is used as "+
				"the test split", only.file))
			slices.SortStableFunc(only.found, func(a, b source.Found) int { return strings.Compare(a.Class, b.Class) })
			addDigits(walk, "", name, only)
		default:
			addDigits(walk, "train", name, train)
			addDigits(walk, "test", name, test)
		}
	}

	return place.finish(walk, "files or folders of every domain", notes...)
}

func addDigits(w *source.Walk, split, domain string, s *digitSplit) {
	w.Skipped = append(w.Skipped, s.skipped...)
	for _, f := range s.found {
		f.Split, f.Domain = split, domain
		w.Found = append(w.Found, f)
	}
}

// digitFiles reads the formats that are not class folders; a missing split is nil.
func (p *domainPlace) digitFiles(dir string) (train, test *digitSplit, err error) {
	for _, format := range []func(dir, split string) (*digitSplit, error){p.idx, p.usps, p.svhn, p.digitLists,
		p.digitPickle} {
		if train, err = format(dir, "train"); err == nil {
			test, err = format(dir, "test")
		}
		if train != nil || test != nil || err != nil {
			return train, test, err
		}
	}

	return nil, nil, nil
}

// digitFile finds a file or a folder by any of its names, in a domain's folder or in torchvision's subfolders of it.
func (p *domainPlace) digitFile(dir string, folder bool, names ...string) (string, error) {
	var paths []string
	for _, sub := range []string{".", "raw", filepath.Base(dir), filepath.Base(dir) + "/raw"} {
		for _, name := range names {
			paths = append(paths, sub+"/"+name)
		}
	}
	return p.finder.First(folder, []string{dir}, paths...)
}

// digitLists reads Dassl's Digits-5 and the original MNIST-M: a folder of images and a list with lines "name label".
func (p *domainPlace) digitLists(dir, split string) (*digitSplit, error) {
	for _, names := range [][2]string{{"%s.txt", "%s_images"}, {"mnist_m_%s_labels.txt", "mnist_m_%s"}} {
		file, err := p.digitFile(dir, false, fmt.Sprintf(names[0], split))
		if err != nil {
			return nil, err
		}
		images, err := p.digitFile(dir, true, fmt.Sprintf(names[1], split))
		if err != nil {
			return nil, err
		}
		if file != "" && images != "" {
			return p.digitList(file, images)
		}
	}

	return nil, nil
}

func (p *domainPlace) digitList(file, images string) (*digitSplit, error) {
	lines, err := domainLines(file)
	if err != nil {
		return nil, err
	}

	listed := p.listed()
	listed.dirs = []string{images}
	for _, line := range lines {
		if line.label > 9 {
			return nil, fmt.Errorf("%s: label %d: expected digits", line.where, line.label)
		}
		if err := listed.image("", 0, digitNames[line.label], line.path, line.where); err != nil {
			return nil, err
		}
	}

	return &digitSplit{listed.walk.Found, listed.walk.Skipped, file}, nil
}

// digitPickle reads FedBN's train.pkl and test.pkl: a pair of arrays, images [N,H,W] or [N,H,W,3], and labels.
func (p *domainPlace) digitPickle(dir, split string) (*digitSplit, error) {
	return p.oneFile(dir, false, pickledDigits, split+".pkl")
}

func pickledDigits(file *os.File, info fs.FileInfo) (*source.Pixels, []float64, error) {
	first, second, err := pickle.ReadPair(file, info.Size())
	if err != nil {
		return nil, nil, err
	}

	array, ok := first.(*pickle.Array)
	if !ok || len(array.Shape) != 3 && (len(array.Shape) != 4 || array.Shape[3] != 3) {
		return nil, nil, errors.New("expected a pair of numpy arrays, images [N,H,W] or [N,H,W,3] and labels")
	}

	labels, err := pickle.Numbers(file, second)
	if err != nil {
		return nil, nil, err
	}

	images := &source.Pixels{Count: array.Shape[0], Height: array.Shape[1], Width: array.Shape[2], Channels: 1,
		Order: source.PixelByPixel}
	if len(array.Shape) == 4 {
		images.Channels = 3
	}

	return images, labels, cmp.Or(images.CheckSides(), images.SetArray(array))
}

// digitPixels makes a split of the images in one file, whose labels are from file. If tens is set, the label 10 means
// zero.
func (p *domainPlace) digitPixels(pixels *source.Pixels, file string, labels []float64, tens bool) (*digitSplit,
	error) {
	whole := make([]int, len(labels))
	for i, l := range labels {
		if tens && l == 10 {
			l = 0
		}
		if whole[i] = int(l); l < 0 || l > 9 || float64(whole[i]) != l {
			return nil, fmt.Errorf("%s: label %d is %v: expected digits", file, i, l)
		}
	}

	list, err := pixels.Examples(p.cfg.Root, whole, 0)
	if err != nil {
		return nil, err
	}

	out := &digitSplit{file: pixels.Path}
	for _, e := range list {
		out.found = append(out.found, source.Found{Class: digitNames[e.Label], Example: e})
	}

	return out, nil
}
