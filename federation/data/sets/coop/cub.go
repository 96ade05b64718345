package coop

import (
	"fmt"
	"strconv"
	"strings"

	"promptfed/federation/data/sets/source"
)

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
	l := &source.Listing{List: paths[1], Images: paths[0]}
	err = numbered(paths[1], func(where string, id int, path string) error {
		n, ok := labels[id]
		if !ok {
			return fmt.Errorf("%s: image %d has no label in %s", where, id, paths[2])
		}
		name := names[n]
		if name == "" && paths[4] != "" {
			return fmt.Errorf("%s: label %d has no name in %s", where, n, paths[4])
		}
		if name == "" {
			folder, _, _ := strings.Cut(path, "/")
			name = birdName(folder)
		}
		t, ok := train[id]
		if !ok || t != 0 && t != 1 {
			return fmt.Errorf("%s: image %d has no 0 or 1 in %s", where, id, paths[3])
		}
		if err := l.Name(where, n-1, name); err != nil {
			return err
		}
		return l.Add(where, source.Item{Path: path, Label: n - 1, Split: []string{"test", "train"}[t]})
	})
	return l, err
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
