package sets

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"promptfed/federation/data"
)

const parquetExpects = "Hugging Face's *.parquet, such as train-00000-of-00001.parquet, in it, in data/ or in one " +
	"folder per configuration: columns image (bytes), label, and if wanted domain"

// openParquet reads Parquet files in the folders that Hugging Face data sets come in. Images stay in the files and are
// read one page at a time.
func openParquet(cfg Config) (*data.Set, error) {
	files, err := parquetFiles(cfg.Root)
	if err != nil {
		return nil, err
	}
	x := &pqSet{root: cfg.Root, pages: newImagePages(), labels: map[string]int{}, domains: map[string]int{},
		roll: &roll{list: cfg.Root, layout: fmt.Sprintf("%d Parquet files", len(files))}}
	if st, err := os.Stat(cfg.Root); err == nil && !st.IsDir() {
		x.root = filepath.Dir(cfg.Root)
	}
	splits := map[string]bool{}
	for _, f := range files {
		splits[f.split] = true
	}
	for _, f := range files {
		if f.split == "" && len(splits) > 1 {
			x.roll.notes = append(x.roll.notes, fmt.Sprintf("%s is left out: its name says neither train, val nor "+
				"test", f.path))
			continue
		}
		err := x.add(f.path, f.split)
		if err != nil && cfg.Corrupt == data.Skip {
			x.roll.skipped = append(x.roll.skipped, data.Skipped{Name: f.path, Reason: err.Error()})
		} else if err != nil {
			return nil, err
		}
	}
	return x.set(cfg)
}

// pqNamed is a Parquet file and the split that its name tells.
type pqNamed struct{ path, split string }

// parquetFiles finds the files, at most two folders down. Folders other than data and those of splits are
// configurations, of which there may be one.
func parquetFiles(root string) ([]pqNamed, error) {
	if st, err := os.Stat(root); err == nil && !st.IsDir() {
		split, err := splitOf(root)
		return []pqNamed{{root, split}}, err
	}
	configs := map[string][]pqNamed{}
	var list func(dir, config, split string, depth int) error
	list = func(dir, config, split string, depth int) error {
		all, err := entries(dir)
		if err != nil {
			return err
		}
		for _, e := range all {
			name := filepath.Join(dir, e.Name())
			switch {
			case e.IsDir() && depth < 3:
				c := config
				s, err := splitOf(name)
				if err != nil {
					return err
				}
				if depth == 0 && s == "" && !strings.EqualFold(e.Name(), "data") {
					c = e.Name()
				}
				if s == "" {
					s = split
				}
				if err := list(name, c, s, depth+1); err != nil {
					return err
				}
			case !e.IsDir() && strings.EqualFold(filepath.Ext(name), ".parquet"):
				s, err := splitOf(name)
				if err != nil {
					return err
				}
				configs[config] = append(configs[config], pqNamed{name, cmp.Or(s, split)})
			}
		}
		return nil
	}
	if err := list(root, "", "", 0); err != nil {
		return nil, err
	}
	names := sortedKeys(configs)
	if len(names) == 0 {
		return nil, fmt.Errorf("no Parquet files in %s: looked for %s, %s and %s", root, filepath.Join(root,
			"train-*.parquet"),
			filepath.Join(root, "data", "*.parquet"), filepath.Join(root, "CONFIGURATION", "*.parquet"))
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("%s holds several configurations, %q (\"\" is the folder itself): give data.root the "+
			"folder of one", root, names)
	}
	return configs[names[0]], nil
}

// splitOf is the split that a word of a file's name says, or "". Words that say two splits are an error.
func splitOf(path string) (split string, err error) {
	name := strings.ToLower(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		s := splitWords[word]
		if s != "" && split != "" && s != split {
			return "", fmt.Errorf("%s: its name says %s and %s: rename it to what it holds", path, split, s)
		}
		split = cmp.Or(s, split)
	}
	return split, nil
}

// pqSet collects the rows of the files.
type pqSet struct {
	root    string
	roll    *roll
	pages   *pqImagePages
	names   []string // of numbers, by the files' features; nil where they do not say
	text    bool     // labels are text
	began   bool
	labels  map[string]int // of labels that are text, in the order seen
	domains map[string]int // likewise
}

// add lists the rows of a file.
func (x *pqSet) add(file, split string) error {
	f, err := openParquetFile(file)
	if err != nil {
		return err
	}
	columns, features, err := f.described(filepath.Dir(file), x.root, filepath.Dir(x.root))
	if err != nil {
		return err
	}
	labels, err := f.values(columns.label)
	if err != nil {
		return err
	}
	if len(labels.rows) > 0 && !slices.ContainsFunc(labels.rows, func(v int32) bool {
		return v >= 0 &&
			labels.values[v].number >= 0
	}) {
		x.roll.notes = append(x.roll.notes, fmt.Sprintf("%s is left out: its rows have no labels", file))
		return nil
	}
	numbers, err := x.number(labels, features[columns.label.Name()].names)
	if err != nil {
		return fmt.Errorf("%s: column %s: %w", file, columns.label.Name(), err)
	}
	domains := pqValues{rows: make([]int32, len(labels.rows)), values: []pqValue{{text: true}}}
	var domainNames []string
	if columns.domain != nil {
		if domains, err = f.values(columns.domain); err != nil {
			return err
		}
		domainNames = features[columns.domain.Name()].names
	}
	rel, err := filepath.Rel(x.root, file)
	if err != nil {
		return err
	}
	row := 0
	for g, group := range f.file.RowGroups() {
		where := pqWhere{f, g, columns.image.Index()}
		for i := range group.NumRows() {
			if row >= min(len(labels.rows), len(domains.rows)) {
				return fmt.Errorf("%s: the file is damaged: columns end at row %d", file, row)
			}
			label, domain := labels.rows[row], domains.rows[row]
			if label < 0 || domain < 0 {
				return fmt.Errorf("%s: row %d has no label or no domain", file, row)
			}
			id := fmt.Sprintf("%s#%08d", filepath.ToSlash(rel), row)
			e := data.Example{ID: id, Stamp: f.stamp, Bytes: func() ([]byte, error) {
				raw, err := x.pages.bytes(where, i)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", id, err)
				}
				return raw, nil
			}}
			x.roll.items = append(x.roll.items, item{path: id, label: numbers[label], split: split, known: &e,
				domain: place(x.domains, domains.values[domain].name(domainNames))})
			row++
		}
	}
	return nil
}

// place is where a name stands in the order in which names were seen.
func place(names map[string]int, name string) int {
	n, ok := names[name]
	if !ok {
		n = len(names)
		names[name] = n
	}
	return n
}

// number gives the labels of a file the numbers that they have in the set so far.
func (x *pqSet) number(labels pqValues, names []string) ([]int, error) {
	if x.began && !slices.Equal(names, x.names) {
		return nil, fmt.Errorf("its classes are called %.60q, but %.60q in files before", names, x.names)
	}
	out := make([]int, len(labels.values))
	for i, v := range labels.values {
		if x.began && v.text != x.text {
			return nil, errors.New("labels are text in some files and numbers in others")
		}
		x.names, x.text, x.began = names, v.text, true
		if v.text {
			out[i] = place(x.labels, strings.ReplaceAll(v.word, "_", " "))
			continue
		}
		end := int64(maxLabel)
		if names != nil {
			end = int64(len(names)) - 1
		}
		if v.number < 0 || v.number > end {
			return nil, fmt.Errorf("label %d is out of range: expected 0 to %d", v.number, end)
		}
		out[i] = int(v.number)
		if err := x.roll.name("label", out[i], v.name(names)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// set sorts classes and domains that are text, makes the splits that are not given, and makes the set.
func (x *pqSet) set(cfg Config) (*data.Set, error) {
	l := x.roll
	label, domain := map[int]int{}, map[int]int{}
	for i, name := range sortedKeys(x.labels) {
		label[x.labels[name]] = i
		if err := l.name("label", i, name); err != nil {
			return nil, fmt.Errorf("%s: %w", x.root, err)
		}
	}
	l.domains = sortedKeys(x.domains)
	for i, name := range l.domains {
		domain[x.domains[name]] = i
	}
	if slices.Equal(l.domains, []string{""}) {
		l.domains = nil
	}
	splits := map[string]bool{}
	for i := range l.items {
		it := &l.items[i]
		if x.text {
			it.label = label[it.label]
		}
		it.domain = domain[it.domain]
		splits[it.split] = true
	}
	if len(splits) == 1 {
		for name := range splits {
			l.notes = append(l.notes, strings.TrimSpace("the files have no splits or only one, "+
				cmp.Or(name, "unnamed"))+": two of every ten images are held out for testing")
		}
		l.holdOut()
		slices.SortFunc(l.items, func(a, b item) int { return strings.Compare(a.path, b.path) })
	} else {
		l.tests()
	}
	if !x.text && x.names == nil {
		l.notes = append(l.notes, "the files do not name their classes: they are called by their numbers; give names "+
			"in data.class_names")
	}
	return l.set(cfg)
}
