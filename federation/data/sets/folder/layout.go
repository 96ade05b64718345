package folder

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/data/sets/source"
)

// Layouts of a folder of images.
const (
	classesLayout      = "classes"
	domainsLayout      = "domains"
	SplitLayout        = "split"
	splitDomainsLayout = "split-domains"
)

var layouts = []string{classesLayout, domainsLayout, SplitLayout, splitDomainsLayout}

// LayoutPaths shows the layouts as paths.
var LayoutPaths = map[string]string{classesLayout: "CLASS/", domainsLayout: "DOMAIN/CLASS/",
	SplitLayout: "SPLIT/CLASS/", splitDomainsLayout: "SPLIT/DOMAIN/CLASS/"}

// detect determines the layout. Folders that hold images are classes, and folders that hold folders are splits or
// domains, depending on their names. If two layouts are possible, it returns an error that names both.
func detect(root string, top []string) (string, error) {
	splits, others := source.SplitsAmong(top)
	nested, err := deep(top)
	if err != nil {
		return "", torn(err, splits, others)
	}

	switch {
	case !nested && len(splits) > 0 && len(others) == 0:
		return "", fmt.Errorf("%s: the folders %s hold images but no folders. Either they are splits whose class "+
			"folders are missing, or they are classes with these names: then set data.layout: classes", root,
			source.FolderNames(top))
	case !nested && (splits["val"] != nil || splits["test"] != nil): // a class may be named train
		odd := source.FolderNames(append(splits["val"], splits["test"]...))
		return "", fmt.Errorf("%s: %s holds images and is next to folders of classes. Either its images have no "+
			"labels: then move it away; or it is a class with this name: then set data.layout: classes", root, odd)
	case !nested:
		return classesLayout, nil
	case len(splits) == 0:
		if err := splitsBelow(top); err != nil {
			return "", err
		}
		return domainsLayout, nil
	case len(others) > 0:
		return "", fmt.Errorf("%s: some folders are named like splits (%s), others are not (%s). Either the set has "+
			"splits: then move %s away; or all are domains: then set data.layout: domains", root,
			source.FolderNames(flat(splits)), source.FolderNames(others), source.FolderNames(others))
	}

	for _, split := range []string{"train", "val", "test"} {
		if same := splits[split]; len(same) > 1 {
			return "", fmt.Errorf("%s: the folders %s all name the %s split. Either they are parts of one split: "+
				"then join them in one folder; or they are domains: then set data.layout: domains", root,
				source.FolderNames(same), split)
		}
	}

	if splits["train"] == nil {
		return "", fmt.Errorf("%s: all folders are named like splits (%s), but none of them is for training. Either "+
			"a folder train is missing, or they are domains: then set data.layout: domains", root,
			source.FolderNames(top))
	}

	var inner []string
	for _, d := range top {
		sub, err := source.Folders(d)
		if err != nil {
			return "", err
		}
		if len(sub) == 0 {
			return "", fmt.Errorf("%s holds no folders: expected one folder per class or domain in it", d)
		}
		inner = append(inner, sub...)
	}

	if domains, err := deep(inner); err != nil || !domains {
		return SplitLayout, err
	}

	return splitDomainsLayout, splitsBelow(inner)
}

// splitsBelow returns an error if there are folders of splits inside domains.
func splitsBelow(dirs []string) error {
	for _, d := range dirs {
		sub, err := source.Folders(d)
		if err != nil {
			return err
		}
		if source.LookLikeSplits(sub) {
			return fmt.Errorf("%s holds the folders %s. Either they are splits of one domain or class, and splits "+
				"must be the outermost folders, as in %s, or in data.root itself: name the folder above them there; "+
				"or they are classes: then set data.layout: domains", d, source.FolderNames(sub),
				LayoutPaths[splitDomainsLayout])
		}
	}

	return nil
}

// torn explains the error mixed, if names of splits may be its cause.
func torn(err error, splits map[string][]string, others []string) error {
	var folders mixed
	if !errors.As(err, &folders) || len(splits) == 0 {
		return err
	}

	if img, e := source.FirstImage(folders.without); len(others) == 0 && (e != nil || img == "") {
		return fmt.Errorf("%s holds no folders: expected class folders in it, as in %s; or remove it", folders.without,
			folders.with)
	}

	if len(others) == 0 {
		return fmt.Errorf("%s holds no class folders, as %s does: its images have no labels. Move it away; without "+
			"folders for test and val, two of every ten images of each class of %s are held out for testing",
			folders.without, folders.with, source.FolderNames(splits["train"]))
	}

	return fmt.Errorf("%s holds folders but %s holds none. Either the set has splits (%s): then move %s away; or all "+
		"folders are classes and must hold images: then set data.layout: classes", folders.with, folders.without,
		source.FolderNames(flat(splits)), source.FolderNames(others))
}

func flat(splits map[string][]string) []string {
	return slices.Concat(slices.Collect(maps.Values(splits))...)
}

// mixed is the error of folders, some of which hold folders and some of which do not.
type mixed struct{ with, without string }

func (m mixed) Error() string {
	return fmt.Sprintf("%s holds folders but %s holds none: expected all folders to be classes with images, or all "+
		"to be domains with class folders", m.with, m.without)
}

// deep reports whether the folders hold folders. It is an error if only some of them do.
func deep(dirs []string) (bool, error) {
	with, without := "", ""
	for _, dir := range dirs {
		sub, err := source.Folders(dir)
		if err != nil {
			return false, err
		}

		if len(sub) == 0 {
			without = dir
			continue
		}

		with = dir
		if img, err := source.FirstImage(dir); err != nil {
			return false, err
		} else if img != "" {
			return false, fmt.Errorf("%s is next to folders: expected a folder to hold either images or class folders",
				img)
		}
	}

	if with != "" && without != "" {
		return false, mixed{with, without}
	}

	return with != "", nil
}

// Splits reads folders of splits.
func Splits(w *source.Walk, top []string, domains bool) error {
	splits, others := source.SplitsAmong(top)
	if len(others) > 0 {
		return fmt.Errorf("%s: expected only folders named train, test and val in %s; move it away", others[0], w.Root)
	}

	if splits["train"] == nil {
		return fmt.Errorf("%s: expected a folder named train in it, but it has %s", w.Root, source.FolderNames(top))
	}

	return w.Splits(w.Root, splits, func(split string, dirs []string) error { return level(w, split, dirs, domains) })
}
