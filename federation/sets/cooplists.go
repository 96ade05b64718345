package sets

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// eachLine calls do with every line of a text file that is not blank, and with where it is.
func eachLine(file string, do func(where, line string) error) error {
	r, done, err := openList(file)
	if err != nil {
		return err
	}
	defer done()
	return scanLines(r, file, do)
}

func scanLines(r io.Reader, file string, do func(where, line string) error) error {
	sc := bufio.NewScanner(r)
	n := 1
	for ; sc.Scan(); n++ {
		if line := strings.TrimSpace(sc.Text()); line != "" {
			if err := do(fmt.Sprintf("%s: line %d", file, n), line); err != nil {
				return err
			}
		}
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%s: line %d is longer than %d bytes", file, n, bufio.MaxScanTokenSize)
	}
	if sc.Err() != nil {
		return fmt.Errorf("%s: %w", file, sc.Err())
	}
	return nil
}

// petLists reads the Oxford-IIIT Pet release: lines of an image name, a label from 1, a species and a breed number. The
// class is the image's name without its number, in small letters.
func petLists(_ Config, paths []string) (*roll, error) {
	l := &roll{list: paths[1], images: paths[0]}
	for i, split := range []string{"trainval", "test"} {
		err := eachLine(paths[i+1], func(where, line string) error {
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
			if err := l.name(where, label-1, strings.ToLower(name[:end])); err != nil {
				return err
			}
			return l.add(where, item{path: name + ".jpg", label: label - 1, split: split})
		})
		if err != nil {
			return nil, err
		}
	}
	l.drawVal()
	return l, nil
}

// classPaths adds images listed as CLASS/NAME, one a line; labels are those of the sorted classes.
func (l *roll) classPaths(listed map[string][]string, suffix string) error {
	var classes []string
	for _, list := range listed {
		for _, p := range list {
			classes = append(classes, path.Dir(p))
		}
	}
	slices.Sort(classes)
	classes = slices.Compact(classes)
	for i, c := range classes {
		if err := l.name(l.list, i, c); err != nil {
			return err
		}
	}
	for _, split := range []string{"train", "val", "test"} {
		for _, p := range listed[split] {
			label, _ := slices.BinarySearch(classes, path.Dir(p))
			if path.Ext(p) == "" {
				p += suffix
			}
			if err := l.add(l.list, item{path: p, label: label, split: split}); err != nil {
				return err
			}
		}
	}
	return nil
}

// foodLists reads the Food-101 release: lines of CLASS/NUMBER, or the same in JSON by class.
func foodLists(_ Config, paths []string) (*roll, error) {
	l := &roll{list: paths[1], images: paths[0]}
	listed := map[string][]string{}
	for i, split := range []string{"train", "test"} {
		file := paths[i+1]
		if strings.EqualFold(filepath.Ext(file), ".json") {
			r, done, err := openList(file)
			if err != nil {
				return nil, err
			}
			var byClass map[string][]string
			err = json.NewDecoder(r).Decode(&byClass)
			done()
			if err != nil {
				return nil, fmt.Errorf("%s: %w: expected {class: [paths]}", file, jsonError(err))
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
	l.official("train and test, no val")
	return l, l.classPaths(listed, ".jpg")
}

func lines(file string, listed map[string][]string, split string) error {
	return eachLine(file, func(_, line string) error {
		listed[split] = append(listed[split], line)
		return nil
	})
}

// textureLists reads the first split of the DTD release: lines of CLASS/IMAGE.
func textureLists(_ Config, paths []string) (*roll, error) {
	l := &roll{list: paths[1], images: paths[0]}
	listed := map[string][]string{}
	for i, split := range []string{"train", "val", "test"} {
		if err := lines(paths[i+1], listed, split); err != nil {
			return nil, err
		}
	}
	l.official("its first of ten")
	return l, l.classPaths(listed, ".jpg")
}

// actionLists reads the first split of UCF101: classInd.txt has lines of a label from 1 and a class, the lists of
// CLASS/VIDEO.avi. The middle frame of a video is a .jpg in a folder of the class, its words apart.
func actionLists(_ Config, paths []string) (*roll, error) {
	l := &roll{list: paths[2], images: paths[0]}
	label := map[string]int{}
	err := eachLine(paths[1], func(where, line string) error {
		number, class, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if err != nil || class == "" {
			return fmt.Errorf("%s: expected a label and a class", where)
		}
		label[class] = n - 1
		return l.name(where, n-1, actionName(class))
	})
	if err != nil {
		return nil, err
	}
	for i, split := range []string{"trainval", "test"} {
		err := eachLine(paths[i+2], func(where, line string) error {
			video, _, _ := strings.Cut(line, " ")
			class, file := path.Split(video)
			class = strings.TrimSuffix(class, "/")
			n, ok := label[class]
			if !ok {
				return fmt.Errorf("%s: class %q is not in %s", where, class, paths[1])
			}
			file = strings.TrimSuffix(file, path.Ext(file)) + ".jpg"
			return l.add(where, item{path: path.Join(actionName(class), file), label: n, split: split})
		})
		if err != nil {
			return nil, err
		}
	}
	l.drawVal()
	return l, nil
}

// sceneLists reads the first partition of SUN397: lines of /a/abbey/IMAGE.jpg. CoOp drops the letter and says the words
// of a path back to front: /a/apse/indoor is "indoor apse".
func sceneLists(_ Config, paths []string) (*roll, error) {
	l := &roll{list: paths[2], images: paths[0]}
	label := map[string]int{}
	err := eachLine(paths[1], func(where, line string) error {
		parts := strings.Split(strings.Trim(line, "/"), "/")
		if len(parts) < 2 {
			return fmt.Errorf("%s: expected a class such as /a/abbey", where)
		}
		n := len(label)
		label[strings.Trim(line, "/")] = n
		parts = parts[1:]
		slices.Reverse(parts)
		return l.name(where, n, strings.Join(parts, " "))
	})
	if err != nil {
		return nil, err
	}
	for i, split := range []string{"trainval", "test"} {
		err := eachLine(paths[i+2], func(where, line string) error {
			p := strings.TrimPrefix(line, "/")
			n, ok := label[path.Dir(p)]
			if !ok {
				return fmt.Errorf("%s: class %q is not in %s", where, path.Dir(p), paths[1])
			}
			return l.add(where, item{path: p, label: n, split: split})
		})
		if err != nil {
			return nil, err
		}
	}
	l.drawVal()
	return l, nil
}

// aircraftLists reads FGVC-Aircraft: variants.txt has a class a line, the lists have lines of an image name and a
// class.
func aircraftLists(_ Config, paths []string) (*roll, error) {
	l := &roll{list: paths[2], images: paths[0]}
	label := map[string]int{}
	err := eachLine(paths[1], func(where, line string) error {
		if _, ok := label[line]; ok {
			return fmt.Errorf("%s: class %q is there twice", where, line)
		}
		label[line] = len(label)
		return l.name(where, label[line], line)
	})
	if err != nil {
		return nil, err
	}
	for i, split := range []string{"train", "val", "test"} {
		err := eachLine(paths[i+2], func(where, line string) error {
			name, class, _ := strings.Cut(line, " ")
			n, ok := label[class]
			if !ok {
				return fmt.Errorf("%s: class %q is not in %s", where, class, paths[1])
			}
			return l.add(where, item{path: name + ".jpg", label: n, split: split})
		})
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}
