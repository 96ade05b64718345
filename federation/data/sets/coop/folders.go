package coop

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"promptfed/federation/data/sets/source"
)

// classFolders reads one folder for each class and draws a split. Labels follow the order of folder names with capitals
// before small letters, as in CoOp. names maps folders to class names, and "" omits a folder; from converts the names
// of other folders, or nil keeps them.
func classFolders(names map[string]string, from func(folder string) string) func(source.Config,
	[]string) (*source.Listing, error) {
	return func(cfg source.Config, paths []string) (*source.Listing, error) {
		listing := &source.Listing{List: paths[0], Images: paths[0]}
		label := 0
		err := folders(listing, cfg, paths[0], "", false, func(dir string) (int, string, error) {
			class := filepath.Base(dir)
			if to, ok := names[class]; ok {
				class = to
			} else if from != nil {
				class = from(class)
			}
			if class != "" {
				label++
			}
			return label - 1, class, nil
		})
		listing.DrawSplit()
		return listing, err
	}
}

// folders adds the images of the class folders in a folder, in the order of their names. class returns the label and
// the name of a folder, or no name to omit it. If inner is set, the images may lie in a folder images in it.
func folders(listing *source.Listing, cfg source.Config, parent, split string, inner bool,
	class func(dir string) (label int, name string, err error)) error {
	dirs, err := source.Folders(parent)
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("%s holds no folders: expected one per class", parent)
	}

	if err != nil {
		return err
	}

	slices.Sort(dirs)
	walk := cfg.Walk()
	walk.Root = listing.Images
	for _, dir := range dirs {
		label, name, err := class(dir)
		if err != nil {
			return err
		}
		if name == "" {
			continue
		}
		if images := filepath.Join(dir, "images"); inner && source.IsFolder(images) {
			dir = images
		}
		if err := listing.Name(dir, label, name); err != nil {
			return err
		}

		files, err := walk.ClassImages(dir)
		if err != nil {
			return err
		}
		for _, e := range files {
			if err := listing.Add(dir, source.Item{Path: e.ID, Label: label, Split: split, Example: &e}); err != nil {
				return err
			}
		}
	}

	listing.Skipped = append(listing.Skipped, walk.Skipped...)
	return walk.Usable()
}

var words = regexp.MustCompile("[A-Z][^A-Z]*")

// actionName separates the words of UCF101's class names, as CoOp does: ApplyEyeMakeup becomes Apply_Eye_Makeup.
func actionName(folder string) string {
	if strings.Contains(folder, "_") || !words.MatchString(folder) {
		return folder
	}
	return strings.Join(words.FindAllString(folder, -1), "_")
}

// synsetFolders reads ImageNet: images/{train,val}/WNID/ and a list with lines "WNID class name". Labels follow the
// order of WNIDs.
func synsetFolders(cfg source.Config, paths []string) (*source.Listing, error) {
	listing := &source.Listing{List: paths[2], Images: filepath.Dir(paths[0]), RepeatedNames: true}
	_, names, err := synsetNames(paths[2])
	if err != nil {
		return nil, err
	}

	label := map[string]int{}
	for i, split := range []string{"train", "test"} {
		err := folders(listing, cfg, paths[i], split, false, func(dir string) (int, string, error) {
			id := filepath.Base(dir)
			if names[id] == "" {
				return 0, "", fmt.Errorf("%s: %s has no line for it", dir, paths[2])
			}
			n, ok := label[id]
			if !ok && split == "test" {
				return 0, "", fmt.Errorf("%s: no such folder in %s", dir, paths[0])
			}
			if !ok {
				n = len(label)
				label[id] = n
			}
			return n, names[id], nil
		})

		if err != nil {
			return nil, err
		}
	}

	return listing, nil
}

// synsetNames reads lines "WNID class name", or the lines "WNID name, synonym, ..." of LOC_synset_mapping.txt. It
// returns the WNIDs in the order of the file, and their names.
func synsetNames(file string) (ids []string, names map[string]string, err error) {
	names = map[string]string{}
	synonyms := strings.HasPrefix(source.NormalizeName(filepath.Base(file)), "loc")
	err = source.EachLine(file, func(where, line string) error {
		id, name, ok := strings.Cut(line, " ")
		if !ok || names[id] != "" {
			return fmt.Errorf("%s: expected a folder name, once, and its class name", where)
		}
		if synonyms {
			name, _, _ = strings.Cut(name, ",")
		}
		ids, names[id] = append(ids, id), strings.TrimSpace(name)
		return nil
	})

	return ids, names, err
}
