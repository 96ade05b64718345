package source

import (
	"path/filepath"
	"slices"
	"strings"
)

// SplitWords are the names of splits as data sets spell them. eval and dev stand for validation: a set that has no test
// split is tested on it all the same.
var SplitWords = map[string]string{"train": "train", "training": "train", "trn": "train",
	"val": "val", "valid": "val", "validation": "val", "dev": "val", "eval": "val", "evaluation": "val",
	"test": "test", "testing": "test", "tst": "test"}

// splitBeside are words that may stand beside the name of a split, as in train_set, imgs_train or val2017.
var splitBeside = []string{"", "set", "split", "data", "images", "image", "imgs", "img"}

// SplitName is the split that a name says, or "": a split's word in any case, alone or with one word or number beside
// it.
func SplitName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(strings.Trim(name, "0123456789 -_.")))
	for word, split := range SplitWords {
		for _, beside := range splitBeside {
			if name == word+beside || name == beside+word {
				return split
			}
		}
	}
	return ""
}

// SplitsAmong are the folders that are named as splits, by split, and the other folders.
func SplitsAmong(dirs []string) (of map[string][]string, others []string) {
	of = map[string][]string{}
	for _, d := range dirs {
		if split := SplitName(filepath.Base(d)); split != "" {
			of[split] = append(of[split], d)
		} else {
			others = append(others, d)
		}
	}
	return of, others
}

// LookLikeSplits tells whether folders that stand where classes are expected are splits by their names: all of them, or
// both train and one to test with. A class may be called train, beside others.
func LookLikeSplits(dirs []string) bool {
	of, others := SplitsAmong(dirs)
	return len(of) > 0 && len(others) == 0 || of["train"] != nil && len(of) > 1
}

// Bases are the last parts of paths, sorted, for messages.
func Bases(paths []string) []string {
	var out []string
	for _, p := range paths {
		if p != "" {
			out = append(out, filepath.Base(p))
		}
	}
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// FolderNames are bases in one line.
func FolderNames(paths []string) string { return strings.Join(Bases(paths), ", ") }
