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
	listing := &source.Listing{List: paths[1], Images: paths[0]}
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
			return listing.AddNamed(where, strings.ToLower(name[:end]),
				source.Item{Path: name + ".jpg", Label: label - 1,
					Split: split})
		})

		if err != nil {
			return nil, err
		}
	}

	listing.DrawVal()
	return listing, nil
}

// classPaths adds images listed as CLASS/NAME, one per line; labels follow the order of the sorted classes. files holds
// the folder of images and then one list for each split.
func classPaths(files []string, splits ...string) (*source.Listing, error) {
	listing := &source.Listing{List: files[1], Images: files[0]}
	label := map[string]int{}
	var items []source.Item
	for i, split := range splits {
		if err := eachPath(files[i+1], func(p string) {
			label[path.Dir(p)] = 0
			items = append(items, source.Item{Path: p, Split: split})
		}); err != nil {
			return nil, err
		}
	}

	for i, c := range slices.Sorted(maps.Keys(label)) {
		label[c] = i
		if err := listing.Name(listing.List, i, c); err != nil {
			return nil, err
		}
	}

	for _, it := range items {
		it.Label = label[path.Dir(it.Path)]
		if path.Ext(it.Path) == "" {
			it.Path += ".jpg"
		}
		if err := listing.Add(listing.List, it); err != nil {
			return nil, err
		}
	}

	return listing, nil
}

// eachPath calls do for every line of a text file, or for every path of a JSON file {class: [paths]}.
func eachPath(file string, do func(p string)) error {
	if !strings.EqualFold(filepath.Ext(file), ".json") {
		return source.EachLine(file, func(_, line string) error { do(line); return nil })
	}

	var byClass map[string][]string
	if err := source.DecodeList(file, &byClass, "{class: [paths]}"); err != nil {
		return err
	}

	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		for _, p := range byClass[class] {
			do(p)
		}
	}

	return nil
}

// foodLists reads the Food-101 release: lines of CLASS/NUMBER, or the same in JSON by class.
func foodLists(_ source.Config, paths []string) (*source.Listing, error) {
	l, err := classPaths(paths, "train", "test")
	return l.OfficialSplit("train and test, no val"), err
}

// textureLists reads the first split of the DTD release, with lines CLASS/IMAGE.
func textureLists(_ source.Config, paths []string) (*source.Listing, error) {
	l, err := classPaths(paths, "train", "val", "test")
	return l.OfficialSplit("its first of ten"), err
}

// actionLists reads the first split of UCF101: lines of classInd.txt have a label from 1 and a class, lines of the
// lists CLASS/VIDEO.avi. The middle frame of a video is a .jpg in a folder with the name of the class, its words
// separated.
func actionLists(_ source.Config, paths []string) (*source.Listing, error) {
	return classLists(paths, []string{"trainval", "test"}, func(listing *source.Listing, label map[string]int) error {
		return numbered(paths[1], func(where string, n int, class string) error {
			label[class] = n - 1
			return listing.Name(where, n-1, actionName(class))
		})
	}, func(line string) (class, image string) {
		video, _, _ := strings.Cut(line, " ")
		class, file := path.Split(video)
		class = strings.TrimSuffix(class, "/")
		return class, path.Join(actionName(class), strings.TrimSuffix(file, path.Ext(file))+".jpg")
	})
}

// classLists reads the images of lists; files holds the folder of images, the list of classes and then one list for
// each split. classes names the classes and fills label. parse returns the class of a line, as a key of label, and the
// path of its image. If the first split is trainval, val is drawn from it.
func classLists(files, splits []string, classes func(listing *source.Listing, label map[string]int) error,
	parse func(line string) (class, image string)) (*source.Listing, error) {
	listing, label := &source.Listing{List: files[2], Images: files[0]}, map[string]int{}
	if err := classes(listing, label); err != nil {
		return nil, err
	}

	for i, split := range splits {
		err := source.EachLine(files[i+2], func(where, line string) error {
			class, image := parse(line)
			n, ok := label[class]
			if !ok {
				return fmt.Errorf("%s: class %q is not in %s", where, class, files[1])
			}
			return listing.Add(where, source.Item{Path: image, Label: n, Split: split})
		})
		if err != nil {
			return nil, err
		}
	}

	if splits[0] == "trainval" {
		listing.DrawVal()
	}

	return listing, nil
}

// sceneLists reads the first partition of SUN397, with lines /a/abbey/IMAGE.jpg. CoOp omits the letter and reverses the
// words of a path: /a/apse/indoor becomes "indoor apse".
func sceneLists(_ source.Config, paths []string) (*source.Listing, error) {
	return classLists(paths, []string{"trainval", "test"}, func(listing *source.Listing, label map[string]int) error {
		return source.EachLine(paths[1], func(where, line string) error {
			parts := strings.Split(strings.Trim(line, "/"), "/")
			if len(parts) < 2 {
				return fmt.Errorf("%s: expected a class such as /a/abbey", where)
			}
			n := len(label)
			label[strings.Trim(line, "/")] = n
			parts = parts[1:]
			slices.Reverse(parts)
			return listing.Name(where, n, strings.Join(parts, " "))
		})
	}, func(line string) (class, image string) {
		image = strings.TrimPrefix(line, "/")
		return path.Dir(image), image
	})
}

// aircraftLists reads FGVC-Aircraft: lines of variants.txt are classes, lines of the lists have an image name and a
// class.
func aircraftLists(_ source.Config, paths []string) (*source.Listing, error) {
	splits := []string{"train", "val", "test"}
	return classLists(paths, splits, func(listing *source.Listing, label map[string]int) error {
		return source.EachLine(paths[1], func(where, line string) error {
			if _, ok := label[line]; ok {
				return fmt.Errorf("%s: class %q occurs twice", where, line)
			}
			label[line] = len(label)
			return listing.Name(where, label[line], line)
		})
	}, func(line string) (class, image string) {
		name, class, _ := strings.Cut(line, " ")
		return class, name + ".jpg"
	})
}

// birdName removes the number of a CUB-200-2011 class: 001.Black_footed_Albatross becomes Black_footed_Albatross.
func birdName(class string) string {
	if number, name, ok := strings.Cut(class, "."); ok {
		if _, err := strconv.Atoi(number); err == nil {
			return name
		}
	}
	return class
}

// birdLists reads the lists of CUB-200-2011. Lines of images.txt have an image's number and path, lines of
// image_class_labels.txt its number and its label from 1, lines of train_test_split.txt its number and 1 for training
// or 0 for test, and lines of classes.txt a label and its name.
func birdLists(_ source.Config, paths []string) (*source.Listing, error) {
	names := map[int]string{}
	if paths[4] != "" {
		err := numbered(paths[4], func(where string, n int, name string) error {
			names[n] = birdName(name)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}

	labels, err := numbers(paths[2])
	if err != nil {
		return nil, err
	}

	train, err := numbers(paths[3])
	if err != nil {
		return nil, err
	}

	listing := &source.Listing{List: paths[1], Images: paths[0]}
	err = numbered(paths[1], func(where string, id int, path string) error {
		label, ok := labels[id]
		if !ok {
			return fmt.Errorf("%s: image %d has no label in %s", where, id, paths[2])
		}

		name := names[label]
		if name == "" && paths[4] != "" {
			return fmt.Errorf("%s: label %d has no name in %s", where, label, paths[4])
		}

		if name == "" {
			folder, _, _ := strings.Cut(path, "/")
			name = birdName(folder)
		}

		t, ok := train[id]
		if !ok || t != 0 && t != 1 {
			return fmt.Errorf("%s: image %d has no 0 or 1 in %s", where, id, paths[3])
		}

		return listing.AddNamed(where, name, source.Item{Path: path, Label: label - 1, Split: []string{"test",
			"train"}[t]})
	})

	return listing, err
}

// numbered calls do for every line of a file; a line is a number, a space and a text.
func numbered(file string, do func(where string, n int, rest string) error) error {
	seen := map[int]bool{}
	return source.EachLine(file, func(where, line string) error {
		number, rest, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		rest = strings.TrimSpace(rest)
		if err != nil || rest == "" {
			return fmt.Errorf("%s: expected a number and a text", where)
		}
		if seen[n] {
			return fmt.Errorf("%s: number %d occurs twice", where, n)
		}
		seen[n] = true
		return do(where, n, rest)
	})
}

// numbers reads a file whose lines are two numbers.
func numbers(file string) (map[int]int, error) {
	out := map[int]int{}
	return out, numbered(file, func(where string, n int, rest string) error {
		v, err := strconv.Atoi(rest)
		if err != nil {
			return fmt.Errorf("%s: %q is not a whole number", where, rest)
		}
		out[n] = v
		return nil
	})
}
