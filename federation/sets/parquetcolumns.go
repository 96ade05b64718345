package sets

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// pqColumns are the columns of a file that are used; domain is nil where there is none.
type pqColumns struct {
	image, label, domain *parquet.Column
}

var (
	pqImages = []string{"image", "img", "picture", "pixel_values"}
	pqLabels = []string{"label", "labels", "fine_label", "class", "class_name", "target", "category"}
)

// columns finds the columns: an image is a struct of bytes and path as Hugging Face writes it, or binary; a label a
// whole number or text, of one of the usual names or else the only one that is a class label by the file's features.
func (f *pqFile) columns(features map[string]pqFeature) (c pqColumns, err error) {
	defer guard(&err)
	top := map[string]*parquet.Column{}
	var have []string
	for _, col := range f.file.Root().Columns() {
		if key := strings.ToLower(col.Name()); top[key] == nil {
			top[key] = col
			have = append(have, col.Name())
		}
	}
	for _, name := range pqImages {
		if c.image = imageLeaf(top[name]); c.image != nil {
			break
		}
	}
	if c.image == nil {
		for _, name := range sortedKeys(top) {
			if top[name].Column("bytes") != nil && c.image == nil {
				c.image = imageLeaf(top[name])
			}
		}
	}
	if c.image == nil {
		return c, fmt.Errorf("%s: no image column among %q: expected binary, or a struct with bytes, called one of "+
			"%s", f.path, have, strings.Join(pqImages, ", "))
	}
	labels := slices.Clone(pqLabels)
	for _, name := range sortedKeys(features) {
		if len(features[name].names) > 0 && name != "coarse_label" && name != "domain" {
			labels = append(labels, strings.ToLower(name))
		}
	}
	for _, name := range labels {
		if c.label = valueLeaf(top[name]); c.label != nil {
			break
		}
	}
	if c.label == nil {
		return c, fmt.Errorf("%s: no label column among %q: expected whole numbers or text, called one of %s", f.path,
			have, strings.Join(pqLabels, ", "))
	}
	c.domain = valueLeaf(top["domain"])
	return c, nil
}

// imageLeaf is the column of an image's bytes.
func imageLeaf(c *parquet.Column) *parquet.Column {
	if c != nil && !c.Leaf() {
		c = c.Column("bytes")
	}
	if c == nil || !c.Leaf() || c.MaxRepetitionLevel() > 0 || c.Type().Kind() != parquet.ByteArray {
		return nil
	}
	return c
}

// valueLeaf is c when it holds whole numbers or text.
func valueLeaf(c *parquet.Column) *parquet.Column {
	if c == nil || !c.Leaf() || c.MaxRepetitionLevel() > 0 {
		return nil
	}
	switch c.Type().Kind() {
	case parquet.Int32, parquet.Int64, parquet.ByteArray:
		return c
	}
	return nil
}

// pqValues are a column of labels or domains: for every row which of the values it has, -1 for none.
type pqValues struct {
	rows   []int32
	values []pqValue
}

// pqValue is a whole number, or a word.
type pqValue struct {
	text   bool
	number int64
	word   string
}

// name is the word, or what a number stands for.
func (v pqValue) name(names []string) string {
	switch {
	case v.text:
		return v.word
	case v.number >= 0 && v.number < int64(len(names)):
		return names[v.number]
	}
	return strconv.FormatInt(v.number, 10)
}

// values reads a column of labels or domains.
func (f *pqFile) values(column *parquet.Column) (v pqValues, err error) {
	at := map[pqValue]int32{}
	for g := range f.file.RowGroups() {
		chunk, err := f.chunk(g, column.Index())
		if err != nil {
			return v, fmt.Errorf("%s: column %s: %w", f.path, column.Name(), oneLine(err))
		}
		for _, p := range chunk.pages {
			values, _, err := chunk.read(p)
			if err != nil {
				return v, fmt.Errorf("%s: column %s: %w", f.path, column.Name(), oneLine(err))
			}
			for _, x := range values {
				v.rows = append(v.rows, v.code(at, x))
			}
		}
	}
	return v, nil
}

// code is the place of a value among those seen.
func (v *pqValues) code(at map[pqValue]int32, x parquet.Value) int32 {
	var key pqValue
	switch x.Kind() {
	case parquet.Int32:
		key.number = int64(x.Int32())
	case parquet.Int64:
		key.number = x.Int64()
	case parquet.ByteArray:
		key.text, key.word = true, string(x.ByteArray())
	default:
		return -1
	}
	n, ok := at[key]
	if !ok {
		n = int32(len(v.values))
		at[key] = n
		v.values = append(v.values, key)
	}
	return n
}
