package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// Statistic is a sufficient statistic of a client's test examples: what the client sends so that metrics over clients
// are exact. It is a list of numbers of a fixed size, or a table of whole numbers.
type Statistic struct {
	Name    string
	Title   string                // of what a client agrees to send
	Size    int                   // of a list, which is part of the header of a reply
	Columns int                   // of a table, which is an int64 tensor of a reply; 0 for a list
	Rows    func(classes int) int // the most that a table may have
	// RevealsLabels marks a statistic from which a client's number of examples of a class follows. A server gets it
	// only where its instruction asks for such statistics, and a client may withhold it.
	RevealsLabels bool
	Compute       func(e Examples) []float64
	// Check refuses numbers that no examples have; they are finite, and of a list or a table.
	Check func(v []float64, test ReportedTest) error
}

// ReportedTest holds the other values of the reply that has a statistic, for its check.
type ReportedTest struct {
	Examples   int
	Classes    int // of the test; 0 where they are unknown
	Statistics     // of the same evaluation, finite and of their sizes
}

// Statistics are the statistics of one evaluation of a client by name.
type Statistics map[string][]float64

// statistics are those that clients send, by name.
var statistics = []*Statistic{squares, confidences, confusion, correct, f1, ownCorrect}

// Examples are a client's test examples with their class scores.
type Examples struct {
	Scores *tensor.Tensor // [N,C]
	Labels []int64        // N
	Own    []int64        // the classes that the client trains on

	predicted []int64
}

// Titles lists what clients send after a test in words, with labels the statistics too that reveal labels.
func Titles(labels bool) []string {
	var out []string
	for _, s := range statistics {
		if labels || !s.RevealsLabels {
			out = append(out, s.Title)
		}
	}
	return out
}

// Compute returns the statistics of examples, and with labels those too that reveal the labels.
func Compute(e Examples, labels bool) Statistics {
	e.predicted = make([]int64, len(e.Labels))
	for i := range e.predicted {
		e.predicted[i] = Argmax(e.Scores.Row(i).Data)
	}

	out := Statistics{}
	for _, s := range statistics {
		if labels || !s.RevealsLabels {
			out[s.Name] = s.Compute(e)
		}
	}

	return out
}

// Argmax is the place of the largest entry, of equal ones the first.
func Argmax(row []float32) int64 {
	best := 0
	for j, v := range row {
		if v > row[best] {
			best = j
		}
	}
	return int64(best)
}

// Check refuses statistics that are not exactly those that an instruction asks for, and statistics that no such
// examples have. The test has so many classes, 0 where they are unknown.
func (s Statistics) Check(examples, classes int, labels bool) error {
	known := map[string]bool{}
	for _, statistic := range statistics {
		values, there := s[statistic.Name]
		known[statistic.Name] = labels || !statistic.RevealsLabels
		switch {
		case !there && !statistic.RevealsLabels:
			return fmt.Errorf("the reply lacks the statistic %s; use the same release on both sides", statistic.Name)
		case !there || !known[statistic.Name]:
			continue
		case statistic.Columns == 0 && len(values) != statistic.Size, statistic.Columns > 0 &&
			len(values)%statistic.Columns != 0:
			return fmt.Errorf("the statistic %s has %d numbers; it must have %d", statistic.Name, len(values),
				max(statistic.Size, statistic.Columns))
		}

		for _, n := range values {
			if math.IsNaN(n) || math.IsInf(n, 0) {
				return fmt.Errorf("the statistic %s holds %v; its numbers must be finite", statistic.Name, n)
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(s)) {
		if !known[name] {
			return fmt.Errorf("the reply has the unexpected statistic %.50q", name)
		}
		if err := find(name).Check(s[name], ReportedTest{examples, classes, s}); err != nil {
			return fmt.Errorf("the statistic %s of %d examples is invalid: %w", name, examples, err)
		}
	}

	return nil
}

// whole refuses numbers that are no whole numbers from 0 to most.
func whole(most int, values ...float64) error {
	for _, v := range values {
		if !(v >= 0 && v <= float64(most) && v == math.Trunc(v)) {
			return fmt.Errorf("%v is not a whole number from 0 to %d", v, most)
		}
	}
	return nil
}

// Tables returns the tables as tensors [rows, columns]. Its result is nil where there are none.
func (s Statistics) Tables() tensor.Map {
	var out tensor.Map
	for _, x := range tables() {
		v, ok := s[x.Name]
		if !ok {
			continue
		}
		flat := convert.Slice(v, func(n float64) int64 { return int64(n) })
		if out == nil {
			out = tensor.Map{}
		}
		out[x.Name] = tensor.OfInts(flat, len(v)/x.Columns, x.Columns)
	}

	return out
}

// AddTables adds the tables [rows, columns] of a reply, as Tables returns them. It refuses names that are not of a
// table, and other types or numbers of columns; Check refuses wrong content.
func (s Statistics) AddTables(m tensor.Map) error {
	for _, name := range m.Names() {
		x, t := find(name), m[name]
		if x == nil || x.Columns == 0 {
			return fmt.Errorf("the reply has the unexpected statistic %.50q", name)
		}
		if !t.IsInt() || len(t.Shape) != 2 || t.Shape[1] != x.Columns {
			return fmt.Errorf("the statistic %s has the shape %v; it must be an int64 table of %d columns", name,
				t.Shape, x.Columns)
		}
		s[name] = convert.Slice(t.Ints, func(n int64) float64 { return float64(n) })
	}

	return nil
}

// TableSpecs are the forms of the tables of a test with so many classes; a client may withhold each of them.
func TableSpecs(classes int) tensor.Specs {
	return convert.Slice(tables(), func(x *Statistic) tensor.Spec {
		return tensor.Spec{Name: x.Name, Int: true, Optional: true, Shape: []int{-x.Rows(classes),
			x.Columns}}
	})
}

func tables() []*Statistic {
	return slices.DeleteFunc(slices.Clone(statistics), func(s *Statistic) bool { return s.Columns == 0 })
}

func find(name string) *Statistic {
	for _, s := range statistics {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// MarshalJSON writes the lists; tables are tensors.
func (s Statistics) MarshalJSON() ([]byte, error) {
	lists := map[string][]float64{}
	for name, v := range s {
		if x := find(name); x == nil || x.Columns == 0 {
			lists[name] = v
		}
	}
	return json.Marshal(lists)
}

// UnmarshalJSON reads lists, each once and of its size. It stops at the first other one, so that it holds no more than
// these.
func (s *Statistics) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}

	decoder := json.NewDecoder(bytes.NewReader(b))
	if t, err := decoder.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("statistics must be a JSON object, by name")
	}

	out := Statistics{}
	for decoder.More() {
		t, err := decoder.Token()
		if err != nil {
			return err
		}

		name, _ := t.(string)
		statistic := find(name)
		if statistic == nil || statistic.Columns > 0 {
			return fmt.Errorf("unexpected statistic %.50q", name)
		}

		if _, twice := out[name]; twice {
			return fmt.Errorf("the statistic %s is there twice", name)
		}

		var v []float64
		if err := decoder.Decode(&v); err != nil {
			return fmt.Errorf("the statistic %s: %w", name, err)
		}

		if len(v) != statistic.Size {
			return fmt.Errorf("the statistic %s has %d numbers; it must have %d", name, len(v), statistic.Size)
		}

		out[name] = v
	}

	*s = out
	return nil
}
