package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"promptfed/federation/data"
	"promptfed/runtime/convert"
	"promptfed/runtime/filestamp"
)

// Extensions lists the extensions of files that are read as images.
var Extensions = []string{".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}

// Walk lists a folder tree.
type Walk struct {
	Root  string
	Skip  bool                  // skip files that are not images, and do not return an error
	Order func(a, b string) int // of classes; nil sorts case-insensitively
	// ByDomain makes missing splits with HoldOutInDomain, not with HoldOut.
	ByDomain bool
	Found    []Found
	Skipped  []data.Skipped
	Notes    []string

	refused data.Unusable
}

// Walk returns the walk over data.root.
func (c Config) Walk() *Walk { return &Walk{Root: c.Root, Skip: c.Corrupt == data.Skip} }

// Found is one image file with the split, domain and class of its folders.
type Found struct {
	Split, Domain, Class string
	Example              data.Example
}

// clutter lists files and folders that desktops, archives and servers leave, besides hidden files.
var clutter = []string{"thumbs.db", "desktop.ini", "Icon\r", "__MACOSX", "@eaDir", "$RECYCLE.BIN",
	"System Volume Information", "lost+found"}

// isOutput reports whether a folder is that of a run, of its seeds or of a sweep, or the folder runs with one of these.
func isOutput(dir string) bool {
	for _, pattern := range []string{"experiment.json", "sweep.json", "seed-*/experiment.json"} {
		if filepath.Base(dir) == "runs" {
			pattern = "*/" + pattern
		}
		if found, err := fs.Glob(os.DirFS(dir), pattern); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// Entries returns the files and folders in a folder, sorted case-insensitively, without hidden files, clutter and what
// runs wrote. It follows links.
func Entries(dir string) ([]fs.FileInfo, error) {
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
		if leadsNowhere(err) && isImage(e.Name()) {
			info, err = e.Info() // of a link, which Images refuses or skips
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read a folder entry: %w", err)
		}
		if !info.IsDir() || !isOutput(filepath.Join(dir, e.Name())) {
			out = append(out, info)
		}
	}

	slices.SortFunc(out, func(a, b fs.FileInfo) int { return compare(a.Name(), b.Name()) })
	return out, nil
}

// leadsNowhere reports whether an error says that a path, such as a link, leads to no file. Others are the machine's.
func leadsNowhere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP)
}

// compare compares case-insensitively, and case-sensitively if that is a tie.
func compare(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}

// SortedKeys returns the keys of a map in the order of Entries, which ignores case.
func SortedKeys[V any](m map[string]V) []string { return slices.SortedFunc(maps.Keys(m), compare) }

// Folders returns the paths of the folders in dir.
func Folders(dir string) ([]string, error) {
	list, err := Entries(dir)
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

// isImage reports whether a file has the extension of an image.
func isImage(name string) bool {
	return slices.Contains(Extensions, strings.ToLower(filepath.Ext(name)))
}

// FirstImage returns the path of the first image file in dir, or "".
func FirstImage(dir string) (string, error) {
	list, err := Entries(dir)
	for _, e := range list {
		if !e.IsDir() && isImage(e.Name()) {
			return filepath.Join(dir, e.Name()), err
		}
	}
	return "", err
}

// Images returns the image files in a class folder. Any other entry is refused or skipped.
func (w *Walk) Images(dir string) ([]data.Example, error) {
	list, err := Entries(dir)
	if err != nil {
		return nil, err
	}

	var out []data.Example
	for _, entry := range list {
		path := filepath.Join(dir, entry.Name())
		reason := ""
		switch {
		case entry.IsDir():
			reason = "is a folder inside a class folder"
		case entry.Mode()&fs.ModeSymlink != 0:
			reason = "is a link that leads to no file"
		case !isImage(entry.Name()):
			reason = "is not an image file (" + strings.Join(Extensions, ", ") + ")"
		case entry.Size() == 0:
			reason = "is empty"
		}

		if reason != "" {
			unusable := data.Skipped{Name: path, Reason: reason}
			if w.Skip {
				w.Skipped = append(w.Skipped, unusable)
			} else {
				w.refused = append(w.refused, unusable)
			}
			continue
		}

		e, err := FileExample(w.Root, path, entry)
		if err != nil {
			return nil, err
		}

		out = append(out, e)
	}

	return out, nil
}

// FileExample returns an image file of a set, without its label; the name is the path under root.
func FileExample(root, path string, info fs.FileInfo) (data.Example, error) {
	id, err := filepath.Rel(root, path)
	return data.Example{ID: filepath.ToSlash(id), Path: path, Stamp: filestamp.Of(info)}, err
}

// ClassImages returns the image files in a class folder, of which there must be one.
func (w *Walk) ClassImages(dir string) ([]data.Example, error) {
	files, err := w.Images(dir)
	if err == nil && len(files) == 0 {
		err = w.empty(dir)
	}
	return files, err
}

// empty returns the error of a class folder without images.
func (w *Walk) empty(dir string) error {
	return cmp.Or(w.Usable(), fmt.Errorf("%s holds no images: expected files that end in %s, or remove the folder", dir,
		strings.Join(Extensions, ", ")))
}

// IsFolder reports whether path is a folder or a link to one. It reports false where path cannot be read.
func IsFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// Usable refuses the files so far that are not images, unless Skip is set.
func (w *Walk) Usable() error {
	if len(w.refused) > 0 {
		return w.refused
	}
	return nil
}

// Classes reads class folders.
func (w *Walk) Classes(split, domain string, dirs []string) error {
	seen := map[string]string{}
	for _, dir := range dirs {
		name := strings.ReplaceAll(filepath.Base(dir), "_", " ")
		key := strings.ToLower(name)
		if seen[key] != "" {
			return fmt.Errorf("%s and %s are the same class except for case or underscores: keep one", seen[key], dir)
		}

		seen[key] = dir
		files, err := w.Images(dir)
		if err != nil {
			return err
		}

		if len(files) == 0 && (split == "val" || split == "test") {
			w.Notes = append(w.Notes, fmt.Sprintf("%s: %s holds no images", w.Root, dir))
			continue
		}

		if len(files) == 0 {
			return w.empty(dir)
		}

		for _, f := range files {
			w.Found = append(w.Found, Found{split, domain, name, f})
		}
	}

	return nil
}

// Set makes a set of the found images, which layout describes. Without split folders, HoldOut or HoldOutInDomain makes
// the splits.
func (w *Walk) Set(layout string) (*data.Set, error) {
	if err := w.Usable(); err != nil {
		return nil, err
	}

	set := &data.Set{Layout: layout, Skipped: w.Skipped, Notes: w.Notes}
	names := map[string]string{} // by lower case
	domains := map[string]bool{}
	train := map[string]bool{}
	for _, f := range w.Found {
		key := strings.ToLower(f.Class)
		if names[key] == "" {
			names[key] = f.Class
		}
		domains[f.Domain] = true
		train[key] = train[key] || f.Split != "test" && f.Split != "val"
	}

	label := map[string]int{}
	keys := SortedKeys(names)
	if w.Order != nil {
		slices.SortStableFunc(keys, func(a, b string) int { return w.Order(names[a], names[b]) })
	}

	for i, key := range keys {
		if !train[key] {
			return nil, fmt.Errorf("%s: class %q has no training images: expected a folder of that name under train",
				w.Root, names[key])
		}
		set.Classes = append(set.Classes, names[key])
		label[key] = i
	}

	set.Domains = SortedKeys(domains)
	if slices.Equal(set.Domains, []string{""}) {
		set.Domains = nil
	}

	unsplit := make([][]data.Example, max(1, len(set.Domains)))
	for _, f := range w.Found {
		e := f.Example
		e.Label = label[strings.ToLower(f.Class)]
		e.Domain = max(0, slices.Index(set.Domains, f.Domain))
		if f.Split == "" {
			unsplit[e.Domain] = append(unsplit[e.Domain], e)
			continue
		}
		set.Add(f.Split, e)
	}

	if !w.ByDomain {
		AddHeldOut(set, slices.Concat(unsplit...))
		return set, nil
	}

	for _, list := range unsplit {
		for i, split := range HoldOutInDomain(len(list)) {
			set.Add(split, list[i])
		}
	}

	return set, nil
}

// AddHeldOut adds images to a set without splits and splits them with HoldOut; the images are in the order of domains
// and, in a class, of files.
func AddHeldOut(s *data.Set, list []data.Example) {
	cells := convert.Slice(list, func(e data.Example) Cell { return Cell{e.Label, e.Domain} })
	for i, split := range HoldOut(cells) {
		s.Add(split, list[i])
	}
}
