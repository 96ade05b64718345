package numbers

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"promptfed/runtime/convert"
)

// Formats of a table.
const (
	CSV     = "csv"
	Parquet = "parquet"
)

// Formats lists the formats of a table, which are also the file extensions.
var Formats = []string{CSV, Parquet}

// column is a column of a table.
type column struct {
	name string
	kind parquet.Node
}

// Kinds of columns. Values of an optional one may be nil.
var (
	text            = parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	unsigned        = parquet.Uint(64)
	number          = parquet.Leaf(parquet.DoubleType)
	optional        = parquet.Optional(text)
	optionalInteger = parquet.Optional(parquet.Int(64))
	optionalNumber  = parquet.Optional(number)
)

// value parses the text of a value of an optional column.
func (c column) value(cell string) any {
	if cell == "" {
		return nil
	}

	switch c.kind {
	case optionalInteger:
		n, _ := strconv.ParseInt(cell, 10, 64) // every value of the column is one
		return n
	case optionalNumber:
		n, _ := strconv.ParseFloat(cell, 64)
		return n
	}

	return cell
}

// table takes rows. Each column of a row is a text, a uint64, an int64, a float64 or nil.
type table interface {
	add(row []any) error
	close() error
}

func newTable(w io.Writer, form string, columns []column) (table, error) {
	if form == Parquet {
		return newParquet(w, columns), nil
	}
	t := csvTable{csv.NewWriter(w)}
	return t, t.Write(names(columns))
}

func names(columns []column) []string {
	return convert.Slice(columns, func(c column) string { return c.name })
}

type csvTable struct{ *csv.Writer }

func (t csvTable) add(row []any) error {
	out := make([]string, len(row))
	for i, v := range row {
		if v != nil {
			out[i] = fmt.Sprint(v)
		}
	}

	return t.Write(out)
}

func (t csvTable) close() error {
	t.Flush()
	return t.Error()
}

// rowsInGroup limits the memory of a writer.
const rowsInGroup = 1 << 17

// parquetTable has its columns in alphabetical order, as a parquet-go schema does.
type parquetTable struct {
	w     *parquet.GenericWriter[any]
	row   *parquet.RowBuilder
	place []int // index in the file of each column of a row
}

func newParquet(w io.Writer, columns []column) *parquetTable {
	group, table := parquet.Group{}, &parquetTable{}
	sorted := slices.Sorted(slices.Values(names(columns)))
	for _, column := range columns {
		group[column.name], table.place = column.kind, append(table.place, slices.Index(sorted, column.name))
	}

	table.row = parquet.NewRowBuilder(group)
	table.w = parquet.NewGenericWriter[any](w, parquet.NewSchema("numbers", group), parquet.Compression(&parquet.Zstd),
		parquet.MaxRowsPerRowGroup(rowsInGroup))
	return table
}

func (t *parquetTable) add(row []any) error {
	t.row.Reset()
	for i, v := range row {
		if v != nil {
			t.row.Add(t.place[i], parquet.ValueOf(v))
		}
	}

	_, err := t.w.WriteRows([]parquet.Row{t.row.Row()})
	return err
}

func (t *parquetTable) close() error { return t.w.Close() }
