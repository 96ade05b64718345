package domains

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
)

// domainLine is a line "path label" of a list of images.
type domainLine struct {
	path  string
	label int
	where string // file and line
}

// readDomainList reads lines "path label". Paths are relative and have forward slashes.
func readDomainList(r io.Reader, file string) ([]domainLine, error) {
	var out []domainLine
	err := source.ScanLines(r, file, func(where, line string) error {
		cut := strings.LastIndexAny(line, " \t")
		if cut < 0 {
			return fmt.Errorf("%s: %.80q has no label: expected \"path label\"", where, line)
		}

		label, err := strconv.Atoi(line[cut+1:])
		if err != nil || label < 0 || label > source.MaxLabel {
			return fmt.Errorf("%s: label %.80q is not a number from 0: expected \"path label\"", where, line[cut+1:])
		}

		name, ok := relative(strings.TrimSpace(line[:cut]))
		if !ok {
			return fmt.Errorf("%s: %.80q is not a path under the set's folder", where, line[:cut])
		}

		out = append(out, domainLine{name, label, where})
		return nil
	})

	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s is empty: expected lines \"path label\"", file)
	}

	return out, err
}

// domainLines reads a list from a file.
func domainLines(file string) ([]domainLine, error) {
	r, done, err := source.OpenList(file)
	if err != nil {
		return nil, err
	}
	defer done()
	return readDomainList(r, file)
}

// relative cleans a path of a list; it returns false if the path leads out of the folder.
func relative(name string) (string, bool) {
	name = path.Clean(strings.ReplaceAll(name, `\`, "/"))
	return name, name != "." && filepath.IsLocal(filepath.FromSlash(name))
}

// readLists reads a list for every domain that has one; %s in names stands for the names of a domain. Others are nil.
func (p *domainPlace) readLists(dir string, names ...string) ([][]domainLine, error) {
	out := make([][]domainLine, len(p.domains))
	for i, d := range p.domains {
		var spelled []string
		for _, name := range names {
			spelled = append(spelled, d.names(name)...)
		}

		file, err := p.finder.First(false, []string{dir}, spelled...)
		if err == nil && file != "" {
			out[i], err = domainLines(file)
		}
		if err != nil {
			return nil, err
		}
	}

	return out, nil
}

// listed collects the images of lists, and the labels of their classes.
type listed struct {
	*domainPlace
	walk   *source.Walk
	labels map[string]int // label of each class; names is the inverse
	names  map[int]string
	where  map[string]string // first occurrence of each class
	dirs   []string          // folders that paths may be relative to, the one that worked last first
}

func (p *domainPlace) listed() *listed {
	dirs := []string{p.images}
	for _, d := range []string{p.home, p.cfg.Root, filepath.Dir(p.images)} {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}

	return &listed{p, p.cfg.Walk(), map[string]int{}, map[int]string{}, map[string]string{}, dirs}
}

// add adds the images of a list to a split; the class is the last folder of the path.
func (l *listed) add(split string, domain int, lines []domainLine) error {
	for _, line := range lines {
		parts := strings.Split(line.path, "/")
		if len(parts) < 2 {
			return fmt.Errorf("%s: %.80q has no class folder: expected domain/class/file", line.where, line.path)
		}
		class := l.class(parts[len(parts)-2])
		if class == "" {
			continue
		}
		if err := l.agree(class, line.label, line.where); err != nil {
			return err
		}
		if err := l.image(split, domain, class, line.path, line.where); err != nil {
			return err
		}
	}

	return nil
}

// agree returns an error if a class has two labels or a label has two classes.
func (l *listed) agree(class string, label int, where string) error {
	have, ok := l.labels[class]
	if ok && have != label {
		return fmt.Errorf("%s: class %q has label %d, but %d in %s", where, class, label, have, l.where[class])
	}

	if other, taken := l.names[label]; taken && other != class {
		return fmt.Errorf("%s: label %d is class %q, but %q in %s", where, label, class, other, l.where[other])
	}

	if !ok {
		l.labels[class], l.names[label], l.where[class] = label, class, where
	}

	return nil
}

// image adds one image; a missing image is an error or is skipped.
func (l *listed) image(split string, domain int, class, name, where string) error {
	if l.skipBroken(l.walk, name) {
		return nil
	}

	file, st := l.resolve(name)
	if st == nil {
		err := fmt.Errorf("%s: image %s does not exist: looked in %s", where, name, strings.Join(l.dirs, ", "))
		if !l.walk.Skip {
			return err
		}
		l.walk.Skipped = append(l.walk.Skipped, data.Skipped{Name: name, Reason: "is listed but does not exist"})
		return nil
	}

	e, err := source.FileExample(l.cfg.Root, file, st)
	l.walk.Found = append(l.walk.Found, source.Found{Split: split, Domain: l.domains[domain].name, Class: class,
		Example: e})
	return err
}

// resolve finds the file of a listed path in the folders that it may be relative to, with or without its first folders,
// since FedBN's paths start above the set's folder. If there is no such file, the info is nil.
func (l *listed) resolve(name string) (string, fs.FileInfo) {
	for i, dir := range l.dirs {
		for rest := name; ; {
			file := filepath.Join(dir, filepath.FromSlash(rest))
			if st, err := os.Stat(file); err == nil && !st.IsDir() {
				l.dirs[0], l.dirs[i] = l.dirs[i], l.dirs[0]
				return file, st
			}
			var more bool
			if _, rest, more = strings.Cut(rest, "/"); !more || !strings.Contains(rest, "/") {
				break
			}
		}
	}

	return "", nil
}

// finish orders the classes by label.
func (l *listed) finish(layout string, notes ...string) (*data.Set, error) {
	if l.classes == nil {
		l.walk.Order = func(a, b string) int { return l.labels[a] - l.labels[b] }
	}
	return l.domainPlace.finish(l.walk, layout, notes...)
}
