package list

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"promptfed/federation/data/sets/source"
)

// readCSVList reads a table with a header. If comma is 0, the separator is detected from the header: a comma, a
// semicolon or a tab.
func readCSVList(comma rune) func(io.Reader, func(int, entry) error) error {
	return func(r io.Reader, add func(line int, e entry) error) error {
		b := bufio.NewReaderSize(r, 1<<16)
		if comma == 0 {
			comma = ','
			if head, _ := b.Peek(1 << 12); !bytes.ContainsRune(firstLine(head), ',') {
				if i := bytes.IndexAny(firstLine(head), ";\t"); i >= 0 {
					comma = rune(head[i])
				}
			}
		}

		table := csv.NewReader(b)
		table.Comma, table.ReuseRecord, table.TrimLeadingSpace = comma, true, true
		var columns []string
		for {
			record, err := table.Read()
			if err == io.EOF && columns != nil {
				return nil
			}

			if err == io.EOF {
				return errors.New("is empty: expected a header such as path,label")
			}

			if err != nil {
				return err // the error names the line
			}

			line, _ := table.FieldPos(0)
			if columns == nil {
				if columns, err = header(record); err != nil {
					return fmt.Errorf("line %d: %w", line, err)
				}
				continue
			}

			var e entry
			for i, v := range record {
				e.set(columns[i], strings.Clone(strings.TrimSpace(v)))
			}

			if err := add(line, e); err != nil {
				return err
			}
		}
	}
}

func firstLine(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return line
}

// header returns the field of each column, or "" for an unknown column.
func header(record []string) ([]string, error) {
	out := make([]string, len(record))
	for i, name := range record {
		column := listColumns[strings.ToLower(strings.TrimSpace(name))]
		if column != "" && slices.Contains(out, column) {
			return nil, fmt.Errorf("two columns hold the %s: keep one of them", column)
		}
		out[i] = column
	}

	if !slices.Contains(out, "path") || !slices.Contains(out, "label") && !slices.Contains(out, "class") {
		return nil, fmt.Errorf("the header %q lacks path or label: expected a header such as "+
			"path,label,domain,split", strings.Join(record, ","))
	}

	return out, nil
}

// readJSONList reads an array of objects, or a sequence of objects, with the names of listColumns as keys.
func readJSONList(r io.Reader, add func(line int, e entry) error) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}

	rest := bytes.TrimLeft(raw, " \t\r\n")
	if len(rest) == 0 {
		return errors.New("is empty: expected objects with path and label")
	}

	array := rest[0] == '['
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if array {
		if err := source.ReadDelim(dec, '['); err != nil {
			return err
		}
	}

	line, read := 1, int64(0) // how many bytes the line counts
	for n := 1; ; n++ {
		if array && !dec.More() {
			return source.ReadDelim(dec, ']')
		}

		var object map[string]any
		err := dec.Decode(&object)
		if err == io.EOF && !array {
			return nil
		}

		end := dec.InputOffset()
		line, read = line+bytes.Count(raw[read:end], []byte("\n")), end
		if err != nil {
			return fmt.Errorf("entry %d, line %d: %w: expected an object with path and label", n, line,
				source.JSONError(err))
		}

		e, err := fromObject(object)
		if err != nil {
			return fmt.Errorf("entry %d, line %d: %w", n, line, err)
		}

		if err := add(line, e); err != nil {
			return err
		}
	}
}

func fromObject(object map[string]any) (entry, error) {
	var entry entry
	seen := map[string]string{}
	for _, key := range source.SortedKeys(object) {
		column := listColumns[strings.ToLower(key)]
		if column == "" || object[key] == nil {
			continue
		}

		if seen[column] != "" {
			return entry, fmt.Errorf("%q and %q both hold the %s: keep one of them", seen[column], key, column)
		}

		seen[column] = key
		switch v := object[key].(type) {
		case string:
			entry.set(column, strings.TrimSpace(v))
		case json.Number:
			entry.set(column, v.String())
		default:
			return entry, fmt.Errorf("%q is neither text nor a number", key)
		}
	}

	return entry, nil
}
