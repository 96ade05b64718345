package fromfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/oneline"
	"promptfed/runtime/onnx"
)

// MetadataKey is the key of the metadata of a method's file.
const MetadataKey = "promptfed.method"

// Version is the version of Metadata.
const Version = 1

// Metadata says what the graph of a method's file cannot say.
type Metadata struct {
	Version    int                 `json:"version"`
	Name       string              `json:"name,omitempty"` // of the method in results; empty: that of the file
	Parameters []Parameter         `json:"parameters"`
	Texts      map[string]Layout   `json:"texts,omitempty"`     // of prompts that differ from the default
	Functions  map[string]Function `json:"functions,omitempty"` // of the engine, for the inputs function/NAME
	Detach     []string            `json:"detach,omitempty"`    // values that are constants for gradients
	Noise      map[string]Noise    `json:"noise,omitempty"`     // for the inputs noise/NAME
	State      map[string]Tensor   `json:"state,omitempty"`     // that a client keeps, for state/NAME
	Down       map[string]Tensor   `json:"down,omitempty"`      // that the server sends, for down/NAME
	Up         map[string]Tensor   `json:"up,omitempty"`        // that a client uploads, for up/NAME
	// Mean is "examples" where the server needs nothing of uploads but their mean, weighted by examples. Secure
	// aggregation and differential privacy need it.
	Mean string `json:"mean,omitempty"`
	View string `json:"view,omitempty"` // of the tested parameters: global (also when empty) or personal
}

// Tensor is a tensor with a shape of its own, or that of a parameter, and an initial value.
type Tensor struct {
	Shape []Size  `json:"shape,omitempty"`
	Like  string  `json:"like,omitempty"`
	Std   float64 `json:"std,omitempty"`   // of a normal distribution around Value
	Value float64 `json:"value,omitempty"` // of every element
}

// Parameter is a learnable tensor.
type Parameter struct {
	Name string `json:"name"`
	Tensor
	Owner  string `json:"owner"`            // shared or private
	Tokens int    `json:"tokens,omitempty"` // T, unless an option sets it
	// Words are not empty where the parameter is a prompt [T,w] that begins at their embeddings. The server has the
	// offset from them.
	Words string `json:"words,omitempty"`
}

// Layout is the layout of a text around a prompt.
type Layout struct {
	Position   string `json:"position,omitempty"` // of the class name: end (also when empty), middle or front
	ReadOffset int    `json:"read_offset,omitempty"`
}

// Function is a use of one of the engine's functions.
type Function struct {
	Function string          `json:"function"`
	Of       []string        `json:"of"` // inputs or outputs of the graph
	Options  json.RawMessage `json:"options,omitempty"`
}

// Noise is a tensor of new random numbers in every step.
type Noise struct {
	Shape        []Size `json:"shape"`
	Distribution string `json:"distribution"` // normal or uniform, from 0 to 1
}

// Size is a number, or the symbol of a client's size.
type Size struct {
	N   int
	Sym string
}

// UnmarshalJSON reads a JSON number into N, or a string into Sym.
func (s *Size) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &s.N) == nil {
		return nil
	}
	return json.Unmarshal(b, &s.Sym)
}

// MarshalJSON writes the string Sym where there is one, else the number N.
func (s Size) MarshalJSON() ([]byte, error) {
	if s.Sym != "" {
		return json.Marshal(s.Sym)
	}
	return json.Marshal(s.N)
}

// String returns Sym where there is one, else N in decimals.
func (s Size) String() string {
	if s.Sym != "" {
		return s.Sym
	}
	return fmt.Sprint(s.N)
}

// Bounds of a method's file.
const (
	maxMetadata = 1 << 16 // bytes
	maxDeclared = 256     // tensors of one kind
	maxTokens   = 1024    // T
	maxWords    = 1000    // bytes
	maxName     = 60      // bytes
	maxStd      = 1e3
	maxRank     = 8
	usualSize   = 256 // of T, w, D and C, before a client's are known
)

// plainName are names of declared tensors, functions and texts.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)

// Name returns the name that a method's file gives the method; "" for none.
func Name(content []byte) string {
	m, err := onnx.Unmarshal(content)
	if err != nil {
		return ""
	}

	meta, err := metadataOf(m)
	if err != nil {
		return "" // whoever builds the method reports it
	}

	return meta.Name
}

// Is reports whether an ONNX file has the metadata of a method.
func Is(content []byte) bool {
	m, err := onnx.Unmarshal(content)
	return err == nil && indexOfMetadata(m) >= 0
}

func indexOfMetadata(m *onnx.ModelProto) int {
	return slices.IndexFunc(m.MetadataProps, func(p *onnx.StringStringEntryProto) bool { return p.Key == MetadataKey })
}

// metadataOf returns the checked metadata of a model.
func metadataOf(m *onnx.ModelProto) (Metadata, error) {
	var meta Metadata
	i := indexOfMetadata(m)
	if i < 0 {
		return meta, fmt.Errorf("it has no metadata %s; export it as docs/onnx-method.md says", MetadataKey)
	}

	text := m.MetadataProps[i].Value
	if len(text) > maxMetadata {
		return meta, fmt.Errorf("metadata %s has %d bytes; at most %d are allowed", MetadataKey, len(text), maxMetadata)
	}

	if err := decode([]byte(text), &meta); err != nil {
		return meta, fmt.Errorf("metadata %s: %w", MetadataKey, err)
	}

	if err := meta.check(); err != nil {
		return meta, fmt.Errorf("metadata %s: %w", MetadataKey, err)
	}

	return meta, nil
}

// decode reads one JSON value without unknown keys.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("text behind the JSON value")
	}

	if err != nil {
		return errors.New(oneline.Text(fmt.Sprintf("%.300q", err.Error())))
	}

	return nil
}

func (m Metadata) check() error {
	if m.Version != Version {
		return fmt.Errorf("version %d is not known; this program reads version %d", m.Version, Version)
	}

	if len(m.Name) > maxName {
		return fmt.Errorf("name has %d bytes; at most %d are allowed", len(m.Name), maxName)
	}

	if m.Mean != "" && m.Mean != string(method.ByExamples) {
		return fmt.Errorf("mean is %.20q; use examples, or leave it out", m.Mean)
	}

	if !slices.Contains([]string{"", "global", "personal"}, m.View) {
		return fmt.Errorf("view is %.20q; use global or personal", m.View)
	}

	if n := max(len(m.Parameters), len(m.Texts), len(m.Functions), len(m.Noise), len(m.State), len(m.Down),
		len(m.Up)); n > maxDeclared {
		return fmt.Errorf("%d entries of one kind; at most %d are allowed", n, maxDeclared)
	}

	seen, total := map[string]bool{}, 0
	for _, parameter := range m.Parameters {
		at := fmt.Sprintf("parameter %.60q", parameter.Name)
		switch {
		case seen[parameter.Name]:
			return fmt.Errorf("%s is declared twice", at)
		case parameter.Owner != method.Shared.String() && parameter.Owner != method.Private.String():
			return fmt.Errorf("%s: owner is %.20q; use shared or private", at, parameter.Owner)
		case parameter.Like != "":
			return fmt.Errorf("%s: like is for other tensors; give a shape", at)
		case parameter.Tokens < 0 || parameter.Tokens > maxTokens || parameter.Tokens == 0 && parameter.has("T"):
			return fmt.Errorf("%s: tokens is %d; a shape with T needs 1 to %d", at, parameter.Tokens, maxTokens)
		}

		if parameter.Words != "" && (fmt.Sprint(parameter.Shape) != "[T w]" || parameter.Value != 0 ||
			len(parameter.Words) > maxWords) {
			return fmt.Errorf("%s: words need shape [T,w], no value, and at most %d bytes", at, maxWords)
		}

		seen[parameter.Name] = true
		if err := m.checkTensor(parameter.Name, parameter.Tensor, &total, "T", "w", "D", "C"); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}

	for _, kind := range []string{"state", "down", "up"} {
		list := m.tensors(port{kind: kind})
		for _, name := range slices.Sorted(maps.Keys(list)) {
			err, x := m.checkTensor(name, list[name], &total, "w", "D", "C"), list[name]
			if err == nil && (kind != "down" && x.Std != 0 || kind == "up" && x.Value != 0) {
				err = fmt.Errorf("std is %g and value %g; a state has no std, and an upload neither: remove them",
					x.Std, x.Value)
			}
			if err != nil {
				return fmt.Errorf("%s %.60q: %w", kind, name, err)
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(m.Noise)) {
		n := m.Noise[name]
		if n.Distribution != "normal" && n.Distribution != "uniform" {
			return fmt.Errorf("noise %.60q: distribution is %.20q; use normal or uniform", name, n.Distribution)
		}
		if err := m.checkTensor(name, Tensor{Shape: n.Shape}, &total, "B", "w", "D", "C"); err != nil {
			return fmt.Errorf("noise %.60q: %w", name, err)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(m.Texts)) {
		l := m.Texts[name]
		if err := checkName(name); err != nil {
			return fmt.Errorf("text %.60q: %w", name, err)
		}
		if !slices.Contains([]string{"", "end", "middle", "front"}, l.Position) || l.ReadOffset < 0 ||
			l.ReadOffset > maxTokens {
			return fmt.Errorf("text %.60q: position is end, middle or front, and read_offset 0 to %d", name, maxTokens)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(m.Functions)) {
		if err := checkName(name); err != nil {
			return fmt.Errorf("function %.60q: %w", name, err)
		}
	}

	return nil
}

func checkName(name string) error {
	if !plainName.MatchString(name) || len(name) > maxName {
		return errors.New("a name has letters, digits, and _ . - / between them, at most 60")
	}
	return nil
}

// tensors returns the declared tensors of a kind: state, down or up; also of the outputs next/state and next/down.
func (m Metadata) tensors(p port) map[string]Tensor {
	return map[string]map[string]Tensor{"state": m.State, "down": m.Down, "up": m.Up}[cmp.Or(p.part, p.kind)]
}

// has reports whether a shape has a symbol.
func (t Tensor) has(sym string) bool {
	return slices.ContainsFunc(t.Shape, func(s Size) bool { return s.Sym == sym })
}

// checkTensor checks a tensor, and adds its elements to total.
func (m Metadata) checkTensor(name string, tensor Tensor, total *int, symbols ...string) error {
	if err := checkName(name); err != nil {
		return err
	}

	like, ok := m.parameter(tensor.Like)
	if tensor.Like != "" && (!ok || tensor.Shape != nil) {
		return fmt.Errorf("like names %.60q; it must be a parameter, and there must be no shape", tensor.Like)
	}

	if len(tensor.Shape) > maxRank {
		return fmt.Errorf("a shape of %d axes; at most %d are allowed", len(tensor.Shape), maxRank)
	}

	for i, s := range tensor.Shape {
		if s.Sym != "" && !slices.Contains(symbols, s.Sym) || s.Sym == "" && (s.N < 1 || s.N > maxElements) {
			return fmt.Errorf("shape %.100v: %.20v is no size; use a number from 1 or %s", tensor.Shape, s,
				strings.Join(symbols, ", "))
		}
		if s.Sym == "B" && i > 0 {
			return fmt.Errorf("shape %.100v: B must be the first axis only", tensor.Shape)
		}
	}

	n := elements(slices.Concat(tensor.Shape, like.Shape))
	if *total += n; n > maxElements || *total > maxAll {
		return fmt.Errorf("shape %.100v is too large: with %d for each of T, w, D and C, a tensor may have %d "+
			"elements at most, and all together %d", tensor.Shape, usualSize, maxElements, maxAll)
	}

	if !(tensor.Std >= 0 && tensor.Std <= maxStd) || !(math.Abs(tensor.Value) <= maxStd) {
		return fmt.Errorf("std is %g and value %g; they must be at most %g", tensor.Std, tensor.Value, maxStd)
	}

	return nil
}

// elements returns the number of elements of a shape with usual sizes and one row, at most maxElements+1.
func elements(shape []Size) int {
	n := 1
	for _, s := range shape {
		if s.Sym != "B" {
			n = min(n*cmp.Or(s.N, usualSize), maxElements+1)
		}
	}
	return n
}

func (m Metadata) parameter(name string) (Parameter, bool) {
	i := slices.IndexFunc(m.Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return Parameter{}, false
	}
	return m.Parameters[i], true
}
