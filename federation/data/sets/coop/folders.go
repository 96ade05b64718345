package coop

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
)

// classFolders reads one folder for each class and draws a split. Labels follow the order of folder names with capitals
// before small letters, as in CoOp. names maps folders to class names, and "" omits a folder; from converts the names
// of other folders, or nil keeps them.
func classFolders(names map[string]string, from func(folder string) string) func(source.Config,
	[]string) (*source.Listing, error) {
	return func(cfg source.Config, paths []string) (*source.Listing, error) {
		l := &source.Listing{List: paths[0], Images: paths[0]}
		dirs, err := (&source.Walk{}).Folders(paths[0])
		if err != nil {
			return nil, err
		}
		slices.Sort(dirs)
		label := 0
		for _, dir := range dirs {
			class := filepath.Base(dir)
			if to, ok := names[class]; ok {
				class = to
			} else if from != nil {
				class = from(class)
			}
			if class == "" {
				continue
			}
			if err := folder(l, cfg, dir, label, class, ""); err != nil {
				return nil, err
			}
			label++
		}
		if label == 0 {
			return nil, fmt.Errorf("%s holds no folders: expected one per class", paths[0])
		}
		l.DrawSplit()
		return l, nil
	}
}

// folder adds the images of a class folder.
func folder(l *source.Listing, cfg source.Config, dir string, label int, class, split string) error {
	if err := l.Name(dir, label, class); err != nil {
		return err
	}
	w := &source.Walk{Root: l.Images, Skip: cfg.Corrupt == data.Skip}
	files, err := w.Images(dir)
	if err != nil {
		return err
	}
	l.Skipped = append(l.Skipped, w.Skipped...)
	if len(files) == 0 {
		return fmt.Errorf("%s holds no images: expected files that end in %s, or remove the folder", dir,
			strings.Join(source.Extensions, ", "))
	}
	for _, e := range files {
		if err := l.Add(dir, source.Item{Path: e.ID, Label: label, Split: split, Example: &e}); err != nil {
			return err
		}
	}
	return nil
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
	l := &source.Listing{List: paths[2], Images: filepath.Dir(paths[0]), RepeatedNames: true}
	_, names, err := synsetNames(paths[2])
	if err != nil {
		return nil, err
	}
	label := map[string]int{}
	for i, split := range []string{"train", "test"} {
		dirs, err := synsetDirs(paths[i])
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			id := filepath.Base(dir)
			if names[id] == "" {
				return nil, fmt.Errorf("%s: %s has no line for it", dir, paths[2])
			}
			n, ok := label[id]
			if !ok && split == "test" {
				return nil, fmt.Errorf("%s: no such folder in %s", dir, paths[0])
			}
			if !ok {
				n = len(label)
				label[id] = n
			}
			if err := folder(l, cfg, dir, n, names[id], split); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
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

// synsetDirs returns the class folders in a folder, in the order of their names.
func synsetDirs(dir string) ([]string, error) {
	dirs, err := (&source.Walk{}).Folders(dir)
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("%s holds no folders: expected one per class, such as n01440764", dir)
	}
	slices.Sort(dirs)
	return dirs, err
}
