package source

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// SplitWords maps the words that data sets use to splits. eval and dev mean validation; a set without a test split is
// tested on it.
var SplitWords = map[string]string{"train": "train", "training": "train", "trn": "train",
	"val": "val", "valid": "val", "validation": "val", "dev": "val", "eval": "val", "evaluation": "val",
	"crossval": "val", "test": "test", "testing": "test", "tst": "test"}

// splitBeside lists words that may stand next to the name of a split, as in train_set, imgs_train or val2017.
var splitBeside = []string{"", "set", "split", "data", "images", "image", "imgs", "img"}

// SplitName returns the split that a name denotes, or "": a split's word in any case, alone or with one such word or a
// number.
func SplitName(name string) string {
	name = strings.Trim(name, "0123456789 -_.")
	name = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, NormalizeName(name))

	for word, split := range SplitWords {
		for _, beside := range splitBeside {
			if name == word+beside || name == beside+word {
				return split
			}
		}
	}

	return ""
}

// SplitsAmong returns the folders with names of splits, by split, and the other folders.
func SplitsAmong(dirs []string) (splits map[string][]string, others []string) {
	splits = map[string][]string{}
	for _, d := range dirs {
		if split := SplitName(filepath.Base(d)); split != "" {
			splits[split] = append(splits[split], d)
		} else {
			others = append(others, d)
		}
	}

	return splits, others
}

// Splits reads folders of splits under a folder; read gets the folders in each of them. Without a test folder, val is
// the test split; without val, HoldOut makes the splits. Both cases add a note.
func (w *Walk) Splits(under string, splits map[string][]string, read func(split string, dirs []string) error) error {
	as, note := map[string]string{"train": "train", "val": "val", "test": "test"}, ""
	for _, split := range []string{"train", "val", "test"} {
		if same := splits[split]; len(same) > 1 {
			return fmt.Errorf("%s all hold the %s split: keep one", strings.Join(same, " and "), split)
		}
	}

	switch {
	case splits["test"] != nil:
	case splits["val"] != nil:
		as["val"] = "test"
		note = fmt.Sprintf("%s: there is no folder of test images: %s is used as the test split, and there is no "+
			"validation split", under, filepath.Base(splits["val"][0]))
	default:
		as["train"] = ""
		note = fmt.Sprintf("%s: there is no folder of test or validation images: two of every ten images of each "+
			"class of %s are held out for testing", filepath.Dir(splits["train"][0]), filepath.Base(splits["train"][0]))
	}

	if note != "" && !slices.Contains(w.Notes, note) { // once for many domains
		w.Notes = append(w.Notes, note)
	}

	for _, split := range []string{"train", "val", "test"} {
		if splits[split] == nil {
			continue
		}
		sub, err := Folders(splits[split][0])
		if err == nil && len(sub) == 0 {
			err = fmt.Errorf("%s holds no folders: expected one folder per class or domain in it", splits[split][0])
		}
		if err == nil {
			err = read(as[split], sub)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// LookLikeSplits reports whether folders at the place of class folders are splits by their names: all of them, or train
// and a split to test on. Among other classes, a class may be named train.
func LookLikeSplits(dirs []string) bool {
	splits, others := SplitsAmong(dirs)
	return len(splits) > 0 && len(others) == 0 || splits["train"] != nil && len(splits) > 1
}

// FolderNames returns the last parts of paths, sorted, in one line.
func FolderNames(paths []string) string {
	var out []string
	for _, p := range paths {
		if p != "" {
			out = append(out, filepath.Base(p))
		}
	}

	slices.SortFunc(out, compare)
	return strings.Join(slices.Compact(out), ", ")
}

// Spelling records the spelling of names. In prompts, names that differ only in case or in underscores for spaces are
// the same, so a list with both means one class, or one domain, in two spellings.
type Spelling map[string]spelled

type spelled struct{ name, where string }

// Check returns an error if a name was spelled differently before; what is the kind of name, where its place.
func (s Spelling) Check(what, where, name string) error {
	key := strings.ToLower(strings.ReplaceAll(name, "_", " "))
	had, ok := s[key]
	if ok && had.name != name {
		return fmt.Errorf("%s: %s %q is %q in %s: expected one spelling", where, what, name, had.name, had.where)
	}

	if !ok {
		s[key] = spelled{name, where}
	}

	return nil
}
