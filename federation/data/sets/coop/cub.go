package coop

import (
	"fmt"
	"strconv"
	"strings"

	"promptfed/federation/data/sets/source"
)

// birdName drops the number of a CUB-200-2011 class: 001.Black_footed_Albatross is Black_footed_Albatross.
func birdName(class string) string {
	if number, name, ok := strings.Cut(class, "."); ok {
		if _, err := strconv.Atoi(number); err == nil {
			return name
		}
	}
	return class
}

// birdLists reads CUB-200-2011: images.txt has lines of an image's number and path, image_class_labels.txt of its
// number and label from 1, train_test_split.txt of its number and 1 for training or 0 for test, classes.txt of a label
// and name.
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

// numbered calls do with every line of a file whose lines are a number, a space and something.
func numbered(file string, do func(where string, n int, rest string) error) error {
	seen := map[int]bool{}
	return source.EachLine(file, func(where, line string) error {
		number, rest, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		rest = strings.TrimSpace(rest)
		if err != nil || rest == "" {
			return fmt.Errorf("%s: expected a number and what it stands for", where)
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
