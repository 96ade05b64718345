package parquet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"promptfed/federation/data"
	"promptfed/federation/data/formats/parquetfile"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filestamp"
)

// Kind reads any images in Parquet files.
var Kind = source.Kind{Name: "parquet", About: "any images in Parquet files, as Hugging Face data sets are stored",
	Expects: parquetExpects,
	Source:  "Hugging Face data sets with image and label columns, or your own", Open: openParquet}

const parquetExpects = "Hugging Face's *.parquet, such as train-00000-of-00001.parquet, in it, in data/ or in one " +
	"folder per configuration: columns image (bytes), label, and if wanted domain, split"

// openParquet reads Parquet files in the folders of Hugging Face data sets. Images stay in the files and are read one
// page at a time.
func openParquet(cfg source.Config) (*data.Set, error) {
	files, err := parquetFiles(cfg.Root)
	if err != nil {
		return nil, err
	}

	set := &pqSet{root: cfg.Root, pages: parquetfile.NewImagePages(), labels: map[string]int{},
		domains: map[string]int{},
		spelled: [2]source.Spelling{{}, {}},
		listing: &source.Listing{List: cfg.Root, Layout: fmt.Sprintf("%d Parquet files", len(files))}}

	if st, err := os.Stat(cfg.Root); err == nil && !st.IsDir() {
		set.root = filepath.Dir(cfg.Root)
	}

	if err := complete(files); err != nil && cfg.Corrupt != data.Skip {
		return nil, err
	} else if err != nil {
		set.listing.Skipped = append(set.listing.Skipped, data.Skipped{Name: cfg.Root, Reason: err.Error()})
	}

	splits := map[string]bool{}
	for _, f := range files {
		splits[f.split] = true
	}

	for _, f := range files {
		if f.split == "" && len(splits) > 1 {
			set.listing.Notes = append(set.listing.Notes,
				fmt.Sprintf("%s is ignored: its name contains none of train, val and test", f.path))
			continue
		}
		before := set.copied()
		err := set.add(f.path, f.split)
		if err != nil && cfg.Corrupt == data.Skip && !data.OfMachine(err) {
			*set = before
			set.listing.Skipped = append(set.listing.Skipped, data.Skipped{Name: f.path, Reason: err.Error()})
		} else if err != nil {
			return nil, err
		}
	}

	return set.set(cfg)
}

// pqNamed is a Parquet file and the split in its name.
type pqNamed struct{ path, split string }

// parquetFiles finds the files, at most three folders down. Folders other than data and those of splits are
// configurations; only one configuration may exist.
func parquetFiles(root string) ([]pqNamed, error) {
	if st, err := os.Stat(root); err == nil && !st.IsDir() {
		split, err := splitOf(root)
		return []pqNamed{{root, split}}, err
	}

	configs := map[string][]pqNamed{}
	var list func(dir, config, split string, depth int) error
	list = func(dir, config, split string, depth int) error {
		all, err := source.Entries(dir)
		if err != nil {
			return err
		}

		for _, entry := range all {
			name := filepath.Join(dir, entry.Name())
			switch {
			case entry.IsDir() && depth < 3:
				inner := config
				s, err := splitOf(name)
				if err != nil {
					return err
				}
				if depth == 0 && s == "" && !strings.EqualFold(entry.Name(), "data") {
					inner = entry.Name()
				}
				if s == "" {
					s = split
				}
				if err := list(name, inner, s, depth+1); err != nil {
					return err
				}
			case !entry.IsDir() && strings.EqualFold(filepath.Ext(name), ".parquet"):
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

	names := source.SortedKeys(configs)
	if len(names) == 0 {
		return nil, fmt.Errorf("no Parquet files in %s: looked for %s, %s and %s", root, filepath.Join(root,
			"train-*.parquet"),
			filepath.Join(root, "data", "*.parquet"), filepath.Join(root, "CONFIGURATION", "*.parquet"))
	}

	if len(names) > 1 {
		return nil, fmt.Errorf("%s holds several configurations, %q (\"\" is the folder itself): set data.root to "+
			"the folder of one", root, names)
	}

	return configs[names[0]], nil
}

// splitOf returns the split that a word of a file's name denotes, or "". It is an error if the words denote two splits.
func splitOf(path string) (split string, err error) {
	name := strings.ToLower(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		s := source.SplitWords[word]
		if s != "" && split != "" && s != split {
			return "", fmt.Errorf("%s: its name contains %s and %s: rename it after its split", path, split, s)
		}
		split = cmp.Or(s, split)
	}

	return split, nil
}

// pqSet collects the rows of the files.
type pqSet struct {
	root    string
	listing *source.Listing
	pages   *parquetfile.ImagePages
	names   []string // class names of the files' features; nil if they have none
	text    bool     // labels are text
	began   bool
	labels  map[string]int     // of text labels, in the order of their first occurrence
	domains map[string]int     // likewise, of domains
	spelled [2]source.Spelling // of text labels, and of domains
}

// copied returns a copy that later files do not change.
func (x *pqSet) copied() pqSet {
	out, listing := *x, *x.listing
	listing.Names = maps.Clone(listing.Names)
	out.listing, out.labels, out.domains = &listing, maps.Clone(x.labels), maps.Clone(x.domains)
	out.spelled = [2]source.Spelling{maps.Clone(x.spelled[0]), maps.Clone(x.spelled[1])}
	return out
}

// add lists the rows of a file; after an error some of them may be listed.
func (x *pqSet) add(file, split string) error {
	opened, err := parquetfile.Open(file)
	if err != nil {
		return err
	}

	columns, features, err := opened.FindColumns(filepath.Dir(file), x.root, filepath.Dir(x.root))
	if err != nil {
		return err
	}

	labels, err := opened.Values(columns.Label)
	if err != nil {
		return err
	}

	if len(labels.Rows) > 0 && !slices.ContainsFunc(labels.Rows, func(v int32) bool {
		return v >= 0 && labels.Values[v].Number >= 0
	}) {
		x.listing.Notes = append(x.listing.Notes, fmt.Sprintf("%s is ignored: its rows have no labels", file))
		return nil
	}

	for _, v := range labels.Values {
		if v.Text {
			if err := x.spelled[0].Check("class", file, v.Word); err != nil {
				return err
			}
		}
	}

	numbers, err := x.number(labels, features[columns.Label.Name()].Names)
	if err != nil {
		return fmt.Errorf("%s: column %s: %w", file, columns.Label.Name(), err)
	}

	domains := parquetfile.Values{Rows: make([]int32, len(labels.Rows)), Values: []parquetfile.Value{{Text: true}}}
	var domainNames []string
	if columns.Domain != nil {
		if domains, err = opened.Values(columns.Domain); err != nil {
			return err
		}
		domainNames = features[columns.Domain.Name()].Names
		for _, v := range domains.Values {
			if err := x.spelled[1].Check("domain", file, v.Name(domainNames)); err != nil {
				return err
			}
		}
	}

	splits := parquetfile.Values{Rows: make([]int32, len(labels.Rows)), Values: []parquetfile.Value{{Word: split}}}
	if columns.Split != nil {
		if splits, err = opened.Values(columns.Split); err != nil {
			return err
		}
		for i, value := range splits.Values {
			word := value.Name(features[columns.Split.Name()].Names)
			named := cmp.Or(source.SplitName(word), split)
			if named == "" || split != "" && named != split {
				return fmt.Errorf("%s: column %s: split %q: expected train, val or test, as in the file's name if it "+
					"has one: rename the column or the file", file, columns.Split.Name(), word)
			}
			splits.Values[i].Word = named
		}
	}

	rel, err := filepath.Rel(x.root, file)
	if err != nil {
		return err
	}

	row := 0
	for g, group := range opened.File.RowGroups() {
		where := parquetfile.ChunkID{File: opened, Group: g, Column: columns.Image.Index()}
		for i := range group.NumRows() {
			if row >= min(len(labels.Rows), len(domains.Rows), len(splits.Rows)) {
				return fmt.Errorf("%s: the file is damaged: columns end at row %d", file, row)
			}

			label, domain, split := labels.Rows[row], domains.Rows[row], splits.Rows[row]
			if min(label, domain, split) < 0 {
				return fmt.Errorf("%s: row %d has no label, no domain or no split", file, row)
			}

			id := fmt.Sprintf("%s#%08d", filepath.ToSlash(rel), row)
			e := data.Example{ID: id, Stamp: filestamp.Of(opened.Info), Bytes: func() ([]byte, error) {
				raw, err := x.pages.Bytes(where, i)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", id, err)
				}
				return raw, nil
			}}

			x.listing.Items = append(x.listing.Items, source.Item{Path: id, Label: numbers[label],
				Split: splits.Values[split].Word, Example: &e,
				Domain: place(x.domains, domains.Values[domain].Name(domainNames))})
			row++
		}
	}

	return nil
}

// place returns the index of a name in the order of first occurrence, and adds a new name.
func place(names map[string]int, name string) int {
	n, ok := names[name]
	if !ok {
		n = len(names)
		names[name] = n
	}
	return n
}

// number returns the labels of a file's values in the set.
func (x *pqSet) number(labels parquetfile.Values, names []string) ([]int, error) {
	if x.began && !slices.Equal(names, x.names) {
		return nil, fmt.Errorf("its classes are %.60q, but %.60q in earlier files", names, x.names)
	}

	out := make([]int, len(labels.Values))
	for i, value := range labels.Values {
		if x.began && value.Text != x.text {
			return nil, errors.New("labels are text in some files and numbers in others")
		}

		x.names, x.text, x.began = names, value.Text, true
		if value.Text {
			out[i] = place(x.labels, strings.ReplaceAll(value.Word, "_", " "))
			continue
		}

		end := int64(source.MaxLabel)
		if names != nil {
			end = int64(len(names)) - 1
		}

		if value.Number < 0 || value.Number > end {
			return nil, fmt.Errorf("label %d is out of range: expected 0 to %d", value.Number, end)
		}

		out[i] = int(value.Number)
		if err := x.listing.Name("label", out[i], value.Name(names)); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// set sorts text classes and domains, makes missing splits, and makes the set.
func (x *pqSet) set(cfg source.Config) (*data.Set, error) {
	listing := x.listing
	label, domain := map[int]int{}, map[int]int{}
	for i, name := range source.SortedKeys(x.labels) {
		label[x.labels[name]] = i
		if err := listing.Name("label", i, name); err != nil {
			return nil, fmt.Errorf("%s: %w", x.root, err)
		}
	}

	listing.Domains = source.SortedKeys(x.domains)
	for i, name := range listing.Domains {
		domain[x.domains[name]] = i
	}

	if slices.Equal(listing.Domains, []string{""}) {
		listing.Domains = nil
	} else if len(listing.Domains) > 0 && listing.Domains[0] == "" {
		return nil, fmt.Errorf("%s: only some images have a domain: expected a column domain in every file or in none",
			x.root)
	}

	splits := map[string]bool{}
	for i := range listing.Items {
		it := &listing.Items[i]
		if x.text {
			it.Label = label[it.Label]
		}
		it.Domain = domain[it.Domain]
		splits[it.Split] = true
	}

	if len(splits) > 1 && splits[""] {
		return nil, fmt.Errorf("%s: only some images have a split: expected a value in every row of a column split",
			x.root)
	}

	if len(splits) == 1 {
		for name := range splits {
			listing.Notes = append(listing.Notes, strings.TrimSpace("the files have no splits or only one, "+
				cmp.Or(name, "unnamed"))+": two of every ten images of each class are held out for testing")
		}
		listing.HoldOut()
		slices.SortFunc(listing.Items, func(a, b source.Item) int { return strings.Compare(a.Path, b.Path) })
	} else {
		listing.ValAsTest()
	}

	if !x.text && x.names == nil {
		listing.Notes = append(listing.Notes, "the files do not name their classes: their numbers are used as names; "+
			"set data.class_names")
	}

	return listing.Set(cfg)
}

// shard matches Hugging Face's names of the parts of a split: train-00001-of-00004.parquet, sometimes with a digest at
// the end.
var shard = regexp.MustCompile(`(?i)^(.*-)(\d{5})-of-(\d{5})(-[0-9a-z]+)?\.parquet$`)

// complete returns an error if the files' names show that other parts of the same split are missing, as after an
// interrupted download, or that one part exists twice.
func complete(files []pqNamed) error {
	type split struct {
		prefix string // including the folder
		parts  int
	}
	found := map[split]map[int]string{}
	var order []split
	for _, pqNamed := range files {
		m := shard.FindStringSubmatch(filepath.Base(pqNamed.path))
		if m == nil {
			continue
		}

		part, _ := strconv.Atoi(m[2]) // five digits
		parts, _ := strconv.Atoi(m[3])
		piece := split{filepath.Join(filepath.Dir(pqNamed.path), m[1]), parts}
		if found[piece] == nil {
			found[piece], order = map[int]string{}, append(order, piece)
		}

		if other := found[piece][part]; other != "" {
			return fmt.Errorf("%s and %s are both part %d of %d: remove the old one", other, pqNamed.path, part, parts)
		}

		found[piece][part] = pqNamed.path
	}

	for _, split := range order {
		for part := range split.parts {
			if found[split][part] == "" {
				return fmt.Errorf("%s%05d-of-%05d.parquet is missing: fetch it, or set data.corrupt: skip to use the "+
					"set without it", split.prefix, part, split.parts)
			}
		}
	}

	return nil
}
