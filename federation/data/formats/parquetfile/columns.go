package parquetfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
)

// pqColumns are the columns of a file that the reader uses; Domain and Split are nil if there are none.
type pqColumns struct {
	Image, Label, Domain, Split *parquet.Column
}

var (
	pqImages = []string{"image", "img", "picture", "pixel_values"}
	pqLabels = []string{"label", "labels", "fine_label", "class", "class_name", "target", "category"}
)

// columns finds the columns. An image is binary, or a struct of bytes and path, as Hugging Face writes it. A label is a
// whole number or text. Its column has one of the usual names, or is the only class label among the file's features.
// The column of images has a usual name, too, or is the only struct of bytes.
func (f *File) columns(features map[string]Feature) (columns pqColumns, err error) {
	defer guard(&err)
	top := map[string]*parquet.Column{}
	var images, labels []string
	for _, col := range f.File.Root().Columns() {
		key := strings.ToLower(col.Name())
		if top[key] != nil {
			continue
		}

		if top[key] = col; col.Column("bytes") != nil {
			images = append(images, col.Name())
		}
	}

	for _, name := range slices.Sorted(maps.Keys(features)) {
		if len(features[name].Names) > 0 && !slices.Contains([]string{"coarse_label", "domain", "split"}, name) {
			labels = append(labels, name)
		}
	}

	columns.Image, err = f.column("image", "binary, or a struct with bytes", top, pqImages, images, imageLeaf)
	if err != nil {
		return columns, err
	}

	columns.Label, err = f.column("label", "whole numbers or text", top, pqLabels, labels, valueLeaf)
	columns.Domain, columns.Split = valueLeaf(top["domain"]), valueLeaf(top["split"])
	return columns, err
}

// column returns the first column with a usual name that fits, or else the only one of others that fits.
func (f *File) column(what, form string, top map[string]*parquet.Column, usual, others []string,
	fit func(*parquet.Column) *parquet.Column) (*parquet.Column, error) {
	at := func(name string) *parquet.Column { return fit(top[strings.ToLower(name)]) }
	for _, name := range usual {
		if c := at(name); c != nil {
			return c, nil
		}
	}

	switch others = slices.DeleteFunc(others, func(name string) bool { return at(name) == nil }); len(others) {
	case 0:
		have := convert.Slice(f.File.Root().Columns(), (*parquet.Column).Name)
		return nil, fmt.Errorf("%s: no %s column among %q: expected %s, called one of %s", f.path, what, have, form,
			strings.Join(usual, ", "))
	case 1:
		return at(others[0]), nil
	}

	return nil, fmt.Errorf("%s: each of the columns %s may be the %s: rename one to %s", f.path,
		strings.Join(others, ", "), what, usual[0])
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

// Values is a column of labels, domains or splits: Rows holds for every row the index of its value, or -1 for none.
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

// Values reads a column of labels, domains or splits.
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
