package folder

import (
	"fmt"
	"path/filepath"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
)

// Kind reads any images in folders.
var Kind = source.Kind{Name: "folder", About: "any images, one folder per class",
	Expects: folderExpects,
	Source:  "your own images", Layouts: layouts, Open: openFolder}

const folderExpects = "CLASS/, DOMAIN/CLASS/, {train,val,test}/CLASS/ or {train,val,test}/DOMAIN/CLASS/; of the " +
	"splits only train must be there"

// openFolder lists an image folder in one of four layouts. Class names are folder names with underscores replaced by
// spaces; classes, domains and files are sorted case-insensitively.
func openFolder(cfg source.Config) (*data.Set, error) {
	walk := cfg.Walk()
	top, err := source.Folders(cfg.Root)
	if err != nil {
		return nil, err
	}

	if len(top) == 0 {
		return nil, fmt.Errorf("%s holds no folders: expected %s", cfg.Root, folderExpects)
	}

	layout := cfg.Layout
	if layout == "auto" {
		if layout, err = detect(cfg.Root, top); err != nil {
			return nil, err
		}
	}

	switch layout {
	case classesLayout, domainsLayout:
		err = level(walk, "", top, layout == domainsLayout)
	default:
		err = Splits(walk, top, layout == splitDomainsLayout)
	}

	if err != nil {
		return nil, err
	}

	return walk.Set(LayoutPaths[layout])
}

// level reads class folders, or domain folders that contain class folders.
func level(walk *source.Walk, split string, dirs []string, domains bool) error {
	if !domains {
		return walk.Classes(split, "", dirs)
	}

	for _, d := range dirs {
		sub, err := source.Folders(d)
		if err != nil {
			return err
		}
		if len(sub) == 0 {
			return fmt.Errorf("%s holds no folders: expected one folder per class in every domain", d)
		}
		if err := walk.Classes(split, filepath.Base(d), sub); err != nil {
			return err
		}
	}

	return nil
}
