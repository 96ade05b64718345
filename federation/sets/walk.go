package sets

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
)

// extensions of files that are taken for images.
var extensions = []string{".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}

// walk lists a folder tree.
type walk struct {
	root    string
	skip    bool                  // leave files that are not images out instead of refusing them
	order   func(a, b string) int // of classes; nil is without regard to case
	found   []found
	skipped []data.Skipped
	notes   []string
}

// found is one image file and what its folders say about it.
type found struct {
	split, domain, class string
	example              data.Example
}

// clutter is what desktops, archives and servers leave in folders beside hidden files.
var clutter = []string{"thumbs.db", "desktop.ini", "Icon\r", "__MACOSX", "@eaDir", "$RECYCLE.BIN",
	"System Volume Information", "lost+found"}

// entries are the names in a folder, sorted without regard to case; hidden files and what desktops leave behind are not
// listed. Links are followed.
func entries(dir string) ([]fs.FileInfo, error) {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s does not exist: expected a folder with images (data.root)", dir)
	case err != nil:
		if st, e := os.Stat(dir); e == nil && !st.IsDir() {
			return nil, fmt.Errorf("%s is a file: expected a folder with images (data.root)", dir)
		}
		return nil, fmt.Errorf("cannot list the folder: %w", err)
	}
	var out []fs.FileInfo
	for _, e := range list {
		if n := e.Name(); strings.HasPrefix(n, ".") || slices.ContainsFunc(clutter,
			func(c string) bool { return strings.EqualFold(c, n) }) {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("cannot read a folder entry: %w", err)
		}
		out = append(out, named{info, e.Name()})
	}
	slices.SortFunc(out, func(a, b fs.FileInfo) int { return compare(a.Name(), b.Name()) })
	return out, nil
}

// named is the information on a link's target under the name of the link.
type named struct {
	fs.FileInfo
	name string
}

func (n named) Name() string { return n.name }

// compare orders without regard to case, and by case where that leaves a tie.
func compare(a, b string) int {
	if c := strings.Compare(strings.ToLower(a), strings.ToLower(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func sortedKeys[V any](m map[string]V) []string { return slices.SortedFunc(maps.Keys(m), compare) }

// folders are the paths of the folders in dir.
func (w *walk) folders(dir string) ([]string, error) {
	list, err := entries(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list {
		if e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// loose is the path of the first image file in dir, or "".
func loose(dir string) (string, error) {
	list, err := entries(dir)
	for _, e := range list {
		if !e.IsDir() && slices.Contains(extensions, strings.ToLower(filepath.Ext(e.Name()))) {
			return filepath.Join(dir, e.Name()), err
		}
	}
	return "", err
}

// images are the image files in a class folder. Anything else in it is refused or skipped.
func (w *walk) images(dir string) ([]data.Example, error) {
	list, err := entries(dir)
	if err != nil {
		return nil, err
	}
	var out []data.Example
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		reason := ""
		switch {
		case e.IsDir():
			reason = "is a folder inside a class folder"
		case !slices.Contains(extensions, strings.ToLower(filepath.Ext(e.Name()))):
			reason = "is not an image file (" + strings.Join(extensions, ", ") + ")"
		case e.Size() == 0:
			reason = "is empty"
		}
		if reason != "" && !w.skip {
			return nil, fmt.Errorf("%s %s: remove it, or set data.corrupt: skip", path, reason)
		}
		if reason != "" {
			w.skipped = append(w.skipped, data.Skipped{Name: path, Reason: reason})
			continue
		}
		id, err := filepath.Rel(w.root, path)
		if err != nil {
			return nil, err
		}
		out = append(out, data.Example{ID: filepath.ToSlash(id), Path: path,
			Stamp: fmt.Sprintf("%d %d", e.Size(), e.ModTime().UnixNano())})
	}
	return out, nil
}
