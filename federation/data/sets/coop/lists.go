package coop

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/data/sets/source"
)

// petLists reads the Oxford-IIIT Pet release: lines of an image name, a label from 1, a species and a breed number. The
// class is the image's name without its number, in lower case.
func petLists(_ source.Config, paths []string) (*source.Listing, error) {
	l := &source.Listing{List: paths[1], Images: paths[0]}
	for i, split := range []string{"trainval", "test"} {
		err := source.EachLine(paths[i+1], func(where, line string) error {
			if strings.HasPrefix(line, "#") {
				return nil
			}
			name, rest, _ := strings.Cut(line, " ")
			number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			label, err := strconv.Atoi(number)
			end := strings.LastIndexByte(name, '_')
			if err != nil || end < 1 {
				return fmt.Errorf("%s: expected an image name such as Abyssinian_100 and a label", where)
			}
			if err := l.Name(where, label-1, strings.ToLower(name[:end])); err != nil {
				return err
			}
			return l.Add(where, source.Item{Path: name + ".jpg", Label: label - 1, Split: split})
		})
		if err != nil {
			return nil, err
		}
	}
	l.DrawVal()
	return l, nil
}

// classPaths adds images listed as CLASS/NAME, one per line; labels follow the order of the sorted classes.
func classPaths(l *source.Listing, listed map[string][]string, suffix string) error {
	var classes []string
	for _, list := range listed {
		for _, p := range list {
			classes = append(classes, path.Dir(p))
		}
	}
	slices.Sort(classes)
	classes = slices.Compact(classes)
	for i, c := range classes {
		if err := l.Name(l.List, i, c); err != nil {
			return err
		}
	}
	for _, split := range []string{"train", "val", "test"} {
		for _, p := range listed[split] {
			label, _ := slices.BinarySearch(classes, path.Dir(p))
			if path.Ext(p) == "" {
				p += suffix
			}
			if err := l.Add(l.List, source.Item{Path: p, Label: label, Split: split}); err != nil {
				return err
			}
		}
	}
	return nil
}

// foodLists reads the Food-101 release: lines of CLASS/NUMBER, or the same in JSON by class.
func foodLists(_ source.Config, paths []string) (*source.Listing, error) {
	l := &source.Listing{List: paths[1], Images: paths[0]}
	listed := map[string][]string{}
	for i, split := range []string{"train", "test"} {
		file := paths[i+1]
		if strings.EqualFold(filepath.Ext(file), ".json") {
			var byClass map[string][]string
			if err := source.DecodeList(file, &byClass, "{class: [paths]}"); err != nil {
				return nil, err
			}
			for _, class := range slices.Sorted(maps.Keys(byClass)) {
				listed[split] = append(listed[split], byClass[class]...)
			}
			continue
		}
		if err := lines(file, listed, split); err != nil {
			return nil, err
		}
	}
	l.OfficialSplit("train and test, no val")
	return l, classPaths(l, listed, ".jpg")
}

func lines(file string, listed map[string][]string, split string) error {
	return source.EachLine(file, func(_, line string) error {
		listed[split] = append(listed[split], line)
		return nil
	})
}

// textureLists reads the first split of the DTD release, with lines CLASS/IMAGE.
func textureLists(_ source.Config, paths []string) (*source.Listing, error) {
	l := &source.Listing{List: paths[1], Images: paths[0]}
	listed := map[string][]string{}
	for i, split := range []string{"train", "val", "test"} {
		if err := lines(paths[i+1], listed, split); err != nil {
			return nil, err
		}
	}
	l.OfficialSplit("its first of ten")
	return l, classPaths(l, listed, ".jpg")
}

// actionLists reads the first split of UCF101: lines of classInd.txt have a label from 1 and a class, lines of the
// lists CLASS/VIDEO.avi. The middle frame of a video is a .jpg in a folder with the name of the class, its words
// separated.
func actionLists(_ source.Config, paths []string) (*source.Listing, error) {
	l := &source.Listing{List: paths[2], Images: paths[0]}
	label := map[string]int{}
	err := source.EachLine(paths[1], func(where, line string) error {
		number, class, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if err != nil || class == "" {
			return fmt.Errorf("%s: expected a label and a class", where)
		}
		label[class] = n - 1
		return l.Name(where, n-1, actionName(class))
	})
	if err != nil {
		return nil, err
	}
	return l, classLists(l, label, paths[1:], []string{"trainval", "test"}, func(line string) (class, image string) {
		video, _, _ := strings.Cut(line, " ")
		class, file := path.Split(video)
		class = strings.TrimSuffix(class, "/")
		return class, path.Join(actionName(class), strings.TrimSuffix(file, path.Ext(file))+".jpg")
	})
}

// classLists adds the images of lists; files holds the list of classes and then one list for each split. parse returns
// the class of a line, as a key of label, and the path of its image. If the first split is trainval, val is drawn from
// it.
func classLists(l *source.Listing, label map[string]int, files, splits []string,
	parse func(line string) (class, image string)) error {
	for i, split := range splits {
		err := source.EachLine(files[i+1], func(where, line string) error {
			class, image := parse(line)
			n, ok := label[class]
			if !ok {
				return fmt.Errorf("%s: class %q is not in %s", where, class, files[0])
			}
			return l.Add(where, source.Item{Path: image, Label: n, Split: split})
		})
		if err != nil {
			return err
		}
	}
	if splits[0] == "trainval" {
		l.DrawVal()
	}
	return nil
}

// sceneLists reads the first partition of SUN397, with lines /a/abbey/IMAGE.jpg. CoOp omits the letter and reverses the
// words of a path: /a/apse/indoor becomes "indoor apse".
func sceneLists(_ source.Config, paths []string) (*source.Listing, error) {
	l := &source.Listing{List: paths[2], Images: paths[0]}
	label := map[string]int{}
	err := source.EachLine(paths[1], func(where, line string) error {
		parts := strings.Split(strings.Trim(line, "/"), "/")
		if len(parts) < 2 {
			return fmt.Errorf("%s: expected a class such as /a/abbey", where)
		}
		n := len(label)
		label[strings.Trim(line, "/")] = n
		parts = parts[1:]
		slices.Reverse(parts)
		return l.Name(where, n, strings.Join(parts, " "))
	})
	if err != nil {
		return nil, err
	}
	return l, classLists(l, label, paths[1:], []string{"trainval", "test"}, func(line string) (class, image string) {
		image = strings.TrimPrefix(line, "/")
		return path.Dir(image), image
	})
}

// aircraftLists reads FGVC-Aircraft: lines of variants.txt are classes, lines of the lists have an image name and a
// class.
func aircraftLists(_ source.Config, paths []string) (*source.Listing, error) {
	l := &source.Listing{List: paths[2], Images: paths[0]}
	label := map[string]int{}
	err := source.EachLine(paths[1], func(where, line string) error {
		if _, ok := label[line]; ok {
			return fmt.Errorf("%s: class %q occurs twice", where, line)
		}
		label[line] = len(label)
		return l.Name(where, label[line], line)
	})
	if err != nil {
		return nil, err
	}
	return l, classLists(l, label, paths[1:], []string{"train", "val", "test"}, func(line string) (class,
		image string) {
		name, class, _ := strings.Cut(line, " ")
		return class, name + ".jpg"
	})
}
