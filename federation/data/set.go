// Package data holds labelled image sets, decodes them on several goroutines, and keeps features of them in a cache on
// disk.
//
// Images are opened lazily; a set is a list of names until something decodes it. Everything random is a function of a
// seed and of names, never of a global generator, of time or of the number of workers.
package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"image"
	"io"
	"math/rand/v2"
	"os"
	"strings"

	"promptfed/runtime/filestamp"
)

// Decoder turns the bytes of an image file into an image.
type Decoder func(io.Reader) (image.Image, error)

// Example is one labelled image that has not been read yet.
type Example struct {
	ID     string // unique in its set: the path under the root, or a made-up name
	Label  int    // index into Set.Classes
	Domain int    // index into Set.Domains; 0 when the set has none
	Path   string // of the image file; "" when the image comes from elsewhere
	// Content is of what the example holds, as Contents gives it; the zero Content where it was not read
	Content Content
	Stamp   string // changes when the image does: filestamp.Of, or how it is drawn

	// One of these is used when Path is "": the image, or the bytes of an image file that lies inside another file.
	Load  func() (image.Image, error)
	Bytes func() ([]byte, error)
}

// Image reads the example; decode is used for files and for bytes of files. The error names the file or the record.
func (e Example) Image(decode Decoder) (image.Image, error) {
	if e.Load != nil {
		return e.Load()
	}
	if e.Bytes != nil {
		raw, err := e.Bytes()
		if err != nil {
			return nil, err
		}
		img, err := decode(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.ID, err)
		}
		return img, nil
	}
	f, err := os.Open(e.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Path, err)
	}
	return img, nil
}

// Name is the path of the image file, or the ID where there is none.
func (e Example) Name() string {
	if e.Path != "" {
		return e.Path
	}
	return e.ID
}

// Set is a data set. Either Train, Val (may be empty) and Test are given, or, with split "pooled", Pool alone.
type Set struct {
	Name    string
	Layout  string // how the files lie, as found: SPLIT/CLASS/ and so on
	Classes []string
	Domains []string // empty for a set without domains
	// Superclasses are the coarse classes and Coarse gives each class the index of its own; both are nil where the set
	// has none.
	Superclasses []string
	Coarse       []int
	// Template is the hand-written prompt that CoOp uses for the set, with {} for the class.
	Template string
	Train    []Example
	Val      []Example
	Test     []Example
	Pool     []Example
	Skipped  []Skipped // files left out because of "corrupt: skip"
	Notes    []string  // one line each: where the files differ from the published set, and what was made of it
}

// Skipped is a file that was left out, and why.
type Skipped struct{ Name, Reason string }

// Split is one named list of examples of a set.
type Split struct {
	Name     string // train, val, test or pool
	Examples *[]Example
}

// Splits are the lists that the set has: pool, or train, val and test (val only when it is not empty).
func (s *Set) Splits() []Split {
	if s.Pool != nil {
		return []Split{{"pool", &s.Pool}}
	}
	out := []Split{{"train", &s.Train}}
	if len(s.Val) > 0 {
		out = append(out, Split{"val", &s.Val})
	}
	return append(out, Split{"test", &s.Test})
}

// OrPool is what indices into one of the lists point into: the pool, where there is one.
func (s *Set) OrPool(list []Example) []Example {
	if s.Pool != nil {
		return s.Pool
	}
	return list
}

// Add puts an example into a split: train, val or else test.
func (s *Set) Add(split string, e Example) {
	to := map[string]*[]Example{"train": &s.Train, "val": &s.Val}[split]
	if to == nil {
		to = &s.Test
	}
	*to = append(*to, e)
}

// MergeSplits makes Pool of train, val (unless it is to be left out) and test, in this order.
func (s *Set) MergeSplits(val bool) {
	s.Pool = append([]Example{}, s.Train...)
	if val {
		s.Pool = append(s.Pool, s.Val...)
	}
	s.Pool = append(s.Pool, s.Test...)
	s.Train, s.Val, s.Test = nil, nil, nil
}

// Counts is the number of examples of every class.
func (s *Set) Counts(examples []Example) []int {
	out := make([]int, len(s.Classes))
	for _, e := range examples {
		out[e.Label]++
	}
	return out
}

// Labels are the labels of examples, in order.
func Labels(examples []Example) []int {
	out := make([]int, len(examples))
	for i, e := range examples {
		out[i] = e.Label
	}
	return out
}

// Pick returns the examples at the given indices of a list, in that order.
func Pick(list []Example, index []int) []Example {
	out := make([]Example, len(index))
	for i, j := range index {
		out[i] = list[j]
	}
	return out
}

// Digest identifies a list of examples on this machine: their names, order and stamps, so it changes when a file is
// added, removed, renamed or rewritten. Labels do not enter.
func Digest(examples []Example) string {
	h := sha256.New()
	for _, e := range examples {
		field(h, e.ID)
		field(h, e.Stamp)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// field writes a string with its length, so that neighbours cannot run into each other.
func field(w io.Writer, s string) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
	w.Write(n[:])
	io.WriteString(w, s)
}

// Stream is a random stream for one purpose: a hash of the seed, the purpose and numbers that tell its uses apart.
func Stream(seed uint64, purpose string, k ...int) *rand.Rand {
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, seed)
	field(h, purpose)
	for _, i := range k {
		binary.Write(h, binary.LittleEndian, int64(i))
	}
	sum := h.Sum(nil)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])))
}

// OneOf refuses a value of a configuration key that is not among those known.
func OneOf(key, value string, known ...string) error {
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	return fmt.Errorf("%s: %q is not known: use one of %s", key, value, strings.Join(known, ", "))
}

// Files lists image files that belong to no set, in the order given.
func Files(paths []string) ([]Example, error) {
	var out []Example
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if st.IsDir() {
			return nil, fmt.Errorf("%s is a folder; name image files", p)
		}
		out = append(out, Example{ID: p, Path: p, Stamp: filestamp.Of(st)})
	}
	return out, nil
}
