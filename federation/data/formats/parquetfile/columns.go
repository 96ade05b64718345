package parquetfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"promptfed/runtime/oneline"
)

// pqColumns are the columns of a file that the reader uses; Domain is nil if there is none.
type pqColumns struct {
	Image, Label, Domain *parquet.Column
}

var (
	pqImages = []string{"image", "img", "picture", "pixel_values"}
	pqLabels = []string{"label", "labels", "fine_label", "class", "class_name", "target", "category"}
)

// columns finds the columns. An image is a struct of bytes and path, as Hugging Face writes it, or binary. A label is a
// whole number or text; its column has one of the usual names, or else is the first class label, by name, among
// the file's features.
func (f *File) columns(features map[string]Feature) (columns pqColumns, err error) {
	defer guard(&err)
	top := map[string]*parquet.Column{}
	var have []string
	for _, col := range f.File.Root().Columns() {
		if key := strings.ToLower(col.Name()); top[key] == nil {
			top[key] = col
			have = append(have, col.Name())
		}
	}

	images := slices.Clone(pqImages)
	for _, name := range slices.Sorted(maps.Keys(top)) {
		if top[name].Column("bytes") != nil {
			images = append(images, name)
		}
	}

	if columns.Image = firstOf(top, images, imageLeaf); columns.Image == nil {
		return columns, fmt.Errorf("%s: no image column among %q: expected binary, or a struct with bytes, called "+
			"one of %s", f.path, have, strings.Join(pqImages, ", "))
	}

	labels := slices.Clone(pqLabels)
	for _, name := range slices.Sorted(maps.Keys(features)) {
		if len(features[name].Names) > 0 && name != "coarse_label" && name != "domain" {
			labels = append(labels, strings.ToLower(name))
		}
	}

	if columns.Label = firstOf(top, labels, valueLeaf); columns.Label == nil {
		return columns, fmt.Errorf("%s: no label column among %q: expected whole numbers or text, called one of %s",
			f.path, have, strings.Join(pqLabels, ", "))
	}

	columns.Domain = valueLeaf(top["domain"])
	return columns, nil
}

// firstOf returns the first of the named columns that fits, or nil.
func firstOf(top map[string]*parquet.Column, names []string,
	fit func(*parquet.Column) *parquet.Column) *parquet.Column {
	for _, name := range names {
		if c := fit(top[name]); c != nil {
			return c
		}
	}
	return nil
}

// imageLeaf returns the column of an image's bytes, or nil.
func imageLeaf(c *parquet.Column) *parquet.Column {
	if c != nil && !c.Leaf() {
		c = c.Column("bytes")
	}
	if c == nil || !c.Leaf() || c.MaxRepetitionLevel() > 0 || c.Type().Kind() != parquet.ByteArray {
		return nil
	}
	return c
}

// valueLeaf returns c if it holds whole numbers or text, and else nil.
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

// Values is a column of labels or domains: Rows holds for every row the index of its value, or -1 for none.
type Values struct {
	Rows   []int32
	Values []Value
}

// Value is a whole number or a text.
type Value struct {
	Text   bool
	Number int64
	Word   string
}

// Name returns the text, or the name of a number.
func (v Value) Name(names []string) string {
	switch {
	case v.Text:
		return v.Word
	case v.Number >= 0 && v.Number < int64(len(names)):
		return names[v.Number]
	}
	return strconv.FormatInt(v.Number, 10)
}

// Values reads a column of labels or domains.
func (f *File) Values(column *parquet.Column) (out Values, err error) {
	at := map[Value]int32{}
	for g := range f.File.RowGroups() {
		chunk, err := f.chunk(g, column.Index())
		if err != nil {
			return out, fmt.Errorf("%s: column %s: %w", f.path, column.Name(), oneline.Error(err))
		}
		for _, p := range chunk.pages {
			values, _, err := chunk.read(p)
			if err != nil {
				return out, fmt.Errorf("%s: column %s: %w", f.path, column.Name(), oneline.Error(err))
			}
			for _, x := range values {
				out.Rows = append(out.Rows, out.code(at, x))
			}
		}
	}

	return out, nil
}

// code returns the index of a value in Values, and adds the value if it is new.
func (v *Values) code(at map[Value]int32, x parquet.Value) int32 {
	var key Value
	switch x.Kind() {
	case parquet.Int32:
		key.Number = int64(x.Int32())
	case parquet.Int64:
		key.Number = x.Int64()
	case parquet.ByteArray:
		key.Text, key.Word = true, string(x.ByteArray())
	default:
		return -1
	}

	n, ok := at[key]
	if !ok {
		n = int32(len(v.Values))
		at[key] = n
		v.Values = append(v.Values, key)
	}

	return n
}
