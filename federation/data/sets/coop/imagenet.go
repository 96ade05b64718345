package coop

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/data/sets/source"
)

// allSynsets is the number of ImageNet's classes.
const allSynsets = 1000

// variantFolders reads folders WNID/ or, as in ImageNetV2, folders N/ for line N of classnames.txt, counted from 0.
// Labels follow the order of that file, which is the order of WNIDs; classes without a folder are omitted.
func variantFolders(cfg source.Config, paths []string) (*source.Listing, error) {
	listing := &source.Listing{List: paths[1], Images: paths[0], RepeatedNames: true, TestOnly: true}
	ids, names, err := synsetNames(paths[1])
	if err != nil {
		return nil, err
	}

	if len(ids) != allSynsets || !slices.IsSorted(ids) {
		return nil, fmt.Errorf("%s has %d lines: expected ImageNet's %d classes in the order of their WNIDs, as in "+
			"CoOp's classnames.txt", paths[1], len(ids), allSynsets)
	}

	return listing, folders(listing, cfg, paths[0], "test", false, func(dir string) (int, string, error) {
		id := filepath.Base(dir)
		label, known := slices.BinarySearch(ids, id)
		if n, err := strconv.Atoi(id); err == nil && n >= 0 && n < len(ids) {
			label, known = n, true
		}
		if !known {
			return 0, "", fmt.Errorf("%s: %s has no line for it", dir, paths[1])
		}
		return label, names[ids[label]], nil
	})
}

// tinyLists reads Tiny-ImageNet as published: val/images/, and lines "file WNID left top right bottom" in
// val_annotations.txt.
func tinyLists(cfg source.Config, paths []string) (*source.Listing, error) {
	if first, err := source.FirstImage(paths[1]); err != nil || first == "" { // a script moved the images to val/WNID/
		return tinyFolders(cfg, []string{paths[0], filepath.Dir(paths[2]), paths[3], paths[4]})
	}

	listing, label, err := tinyTrain(cfg, paths[0], paths[3], paths[4])
	if err != nil {
		return nil, err
	}

	images, err := filepath.Rel(listing.Images, paths[1])
	if err != nil {
		return nil, err
	}

	listing.List = paths[2]
	return listing, source.EachLine(paths[2], func(where, line string) error {
		return annotation(listing, label, filepath.ToSlash(images), where, line)
	})
}

// annotation adds the image of one line of val_annotations.txt.
func annotation(listing *source.Listing, label map[string]int, images, where, line string) error {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return fmt.Errorf("%s: %.80q: expected a file name and a WNID", where, line)
	}

	n, ok := label[fields[1]]
	if !ok {
		return fmt.Errorf("%s: there is no class %.80q among the training folders", where, fields[1])
	}

	if strings.ContainsAny(fields[0], `/\`) {
		return fmt.Errorf("%s: %.80q is not a file name", where, fields[0])
	}

	return listing.Add(where, source.Item{Path: images + "/" + fields[0], Label: n, Split: "test"})
}

// tinyFolders reads Tiny-ImageNet with val/WNID/images/ or val/WNID/, an arrangement that many scripts make.
func tinyFolders(cfg source.Config, paths []string) (*source.Listing, error) {
	listing, label, err := tinyTrain(cfg, paths[0], paths[2], paths[3])
	if err != nil {
		return nil, err
	}

	return listing, folders(listing, cfg, paths[1], "test", true, func(dir string) (int, string, error) {
		id := filepath.Base(dir)
		n, ok := label[id]
		if id == "images" && !ok {
			return 0, "", nil // the emptied folder of the published layout
		}
		if !ok {
			return 0, "", fmt.Errorf("%s: there is no class %q among the training folders", dir, id)
		}
		return n, listing.Names[n], nil
	})
}

// tinyTrain reads the training folders. Labels follow the order of WNIDs. The name of a class is the first of its
// synonyms, or its WNID if there is no words.txt.
func tinyTrain(cfg source.Config, train, wnids, words string) (*source.Listing, map[string]int, error) {
	listing := &source.Listing{List: train, Images: filepath.Dir(train), RepeatedNames: true}
	dirs, err := source.Folders(train)
	if err != nil {
		return nil, nil, err
	}

	slices.Sort(dirs)
	label := map[string]int{}
	for i, dir := range dirs {
		label[filepath.Base(dir)] = i
	}

	if wnids != "" {
		err := source.EachLine(wnids, func(where, line string) error {
			if _, ok := label[line]; !ok {
				return fmt.Errorf("%s: %s does not exist", where, filepath.Join(train, fmt.Sprintf("%.80s", line)))
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}

	names, err := tinyWords(words, label)
	if err != nil {
		return nil, nil, err
	}

	if n := len(dirs) - len(names); n > 0 {
		listing.Notes = append(listing.Notes, fmt.Sprintf("%d of %d classes have no name in words.txt: their WNIDs, "+
			"which a text tower cannot interpret, are used as names; set data.class_names", n, len(dirs)))
	}

	return listing, label, folders(listing, cfg, train, "train", true, func(dir string) (int, string, error) {
		id := filepath.Base(dir)
		return label[id], cmp.Or(names[id], id), nil
	})
}

// tinyWords reads the names of the classes in label from lines "WNID<tab>name, synonym, ..." for all of WordNet.
func tinyWords(file string, label map[string]int) (map[string]string, error) {
	out := map[string]string{}
	if file == "" {
		return out, nil
	}

	err := source.EachLine(file, func(where, line string) error {
		id, name, ok := strings.Cut(line, "\t")
		if !ok {
			return fmt.Errorf("%s: %.80q: expected a WNID, a tab and a name", where, line)
		}
		if _, ok := label[id]; ok {
			name, _, _ = strings.Cut(name, ",")
			out[id] = strings.TrimSpace(name)
		}
		return nil
	})

	return out, err
}
