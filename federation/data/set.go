package data

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"io"
	"math/rand/v2"
	"os"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/runtime/convert"
	"promptfed/runtime/filestamp"
)

// Decoder turns the bytes of an image file into an image.
type Decoder func(io.Reader) (image.Image, error)

// Example is one labelled image that has not been read yet.
type Example struct {
	ID     string // unique in its set: the path under the root, or a generated name
	Label  int    // index into Set.Classes
	Domain int    // index into Set.Domains; 0 if the set has none
	Path   string // of the image file; "" if the image has no file of its own
	// ContentHash is the hash of the content, as ContentHashes computes it; zero if unknown.
	ContentHash ContentHash
	Stamp       string // changes when the image changes: filestamp.Of, or a description of how the image is drawn

	// The image, or the bytes of an image file inside another file; Path is read if neither is set.
	Load  func() (image.Image, error)
	Bytes func() ([]byte, error)
}

// Image reads the image; decode is used for image files and for their bytes. The error names the file or the record.
func (e Example) Image(decode Decoder) (image.Image, error) {
	if e.Load != nil {
		return e.Load()
	}

	f, err := e.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()

	img, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name(), err)
	}

	return img, nil
}

// Unchanged is Image with an error if the image is not that of ContentHash.
func (e Example) Unchanged(decode Decoder) (image.Image, error) {
	sum := sha256.New()
	img, err := e.Image(func(r io.Reader) (image.Image, error) { // decode reads all bytes
		return decode(io.TeeReader(r, sum))
	})

	if err == nil && e.Load != nil {
		writePixels(sum, img)
	}

	if err == nil && e.ContentHash != (ContentHash{}) && ContentHash(sum.Sum(nil)) != e.ContentHash {
		err = MachineError{errors.New("it changed after the run began; start the run again")}
	}

	return img, err
}

// open returns the bytes of the image file.
func (e Example) open() (io.ReadCloser, error) {
	if e.Bytes == nil {
		return os.Open(e.Path)
	}
	raw, err := e.Bytes()
	return io.NopCloser(bytes.NewReader(raw)), err
}

// Name returns the path of the image file, or the ID if there is none.
func (e Example) Name() string { return cmp.Or(e.Path, e.ID) }

// Set is a data set. It has Train, Val (which may be empty) and Test, or, with split "pooled", only Pool.
type Set struct {
	Name    string
	Layout  string // how the files are arranged, as found: SPLIT/CLASS/ and so on
	Classes []string
	Domains []string // empty for a set without domains
	// Superclasses are the coarse classes, and Coarse holds for each class the index of its superclass; both are nil if
	// the set has none.
	Superclasses []string
	Coarse       []int
	// Template is the hand-written prompt of CoOp for the set, with {} for the class.
	Template string
	Train    []Example
	Val      []Example
	Test     []Example
	Pool     []Example
	Skipped  []Skipped // files omitted because of "corrupt: skip"
	Notes    []string  // one line each: differences from the published set, and how the reader treated them
}

// Skipped is a file that was omitted, and the reason.
type Skipped struct{ Name, Reason string }

// Split is one named list of examples of a set.
type Split struct {
	Name     string // train, val, test or pool
	Examples *[]Example
}

// Splits returns the lists of the set: pool, or train, val and test (val only if it is not empty).
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

// PoolOr returns the list that indices refer to: the pool if there is one, and else the given list.
func (s *Set) PoolOr(list []Example) []Example {
	if s.Pool != nil {
		return s.Pool
	}
	return list
}

// Add adds an example to a split: train, val, or else test.
func (s *Set) Add(split string, e Example) {
	to := map[string]*[]Example{"train": &s.Train, "val": &s.Val}[split]
	if to == nil {
		to = &s.Test
	}
	*to = append(*to, e)
}

// MergeSplits concatenates train, val (if the argument is true) and test, in this order, into Pool.
func (s *Set) MergeSplits(val bool) {
	if !val {
		s.Val = nil
	}
	s.Pool = append([]Example{}, slices.Concat(s.Train, s.Val, s.Test)...)
	s.Train, s.Val, s.Test = nil, nil, nil
}

// Counts returns the number of examples of every class.
func (s *Set) Counts(examples []Example) []int {
	out := make([]int, len(s.Classes))
	for _, e := range examples {
		out[e.Label]++
	}
	return out
}

// emptied returns the first class of which the second list has no examples, and how many the first has; 0 if none.
func (s *Set) emptied(before, after []Example) (class string, had int) {
	left := s.Counts(after)
	for k, n := range s.Counts(before) {
		if n > 0 && left[k] == 0 {
			return s.Classes[k], n
		}
	}
	return "", 0
}

// Labels returns the labels of examples, in order.
func Labels(examples []Example) []int {
	return convert.Slice(examples, func(e Example) int { return e.Label })
}

// Pick returns the elements at the given indices of a list, in that order.
func Pick[T any](list []T, index []int) []T {
	return convert.Slice(index, func(j int) T { return list[j] })
}

// Digest identifies a list of examples on this machine by their names, order and stamps; it changes when a file is
// added, removed, renamed or rewritten. It does not depend on labels.
func Digest(examples []Example) string {
	h := sha256.New()
	for _, e := range examples {
		field(h, e.ID)
		field(h, e.Stamp)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// field writes a string after its length, so that the concatenation of fields is unambiguous.
func field(w io.Writer, s string) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
	w.Write(n[:])
	io.WriteString(w, s)
}

// NewRand returns a random stream for one purpose, seeded by a hash of the seed, the purpose and the numbers of its
// use.
func NewRand(seed uint64, purpose string, k ...int) *rand.Rand {
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, seed)
	field(h, purpose)
	for _, i := range k {
		binary.Write(h, binary.LittleEndian, int64(i))
	}

	sum := h.Sum(nil)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])))
}

// OneOf returns an error if the value of a configuration key is not one of the known values.
func OneOf(key, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return configtags.KeyErrorf(key, "%q is not known: %s", value, configtags.Suggest(value, known, ""))
}

// Need returns an error unless a condition holds. The first error of several conditions is cmp.Or of them.
func Need(ok bool, format string, a ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, a...)
}

// Files lists image files that belong to no set, in the given order.
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
