package protocol

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/subjects"
	"promptfed/runtime/tensor"
)

// Limits of messages.
const (
	maxTensors = 4096
	maxRound   = 1 << 30
	MaxError   = 500

	MaxExamples = 1 << 53 // of a client; larger numbers have no exact float64
)

var (
	tensorName = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	SumText    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	Label      = regexp.MustCompile(`^[A-Za-z0-9_ .,:/()-]{0,100}$`)
)

// checkNames refuses names of tensors with characters that have another meaning elsewhere.
func checkNames(m tensor.Map) error {
	if len(m) > maxTensors {
		return fmt.Errorf("%d tensors; at most %d are allowed", len(m), maxTensors)
	}
	for name := range m {
		if len(name) > 200 || !tensorName.MatchString(name) || strings.Contains(name, "..") {
			return fmt.Errorf("tensor %.100q: a name has letters, digits, _, -, . and single slashes between them",
				name)
		}
	}
	return nil
}

func (c Content) check() error {
	if c.Size < 0 || !SumText.MatchString(c.Sum) || !(c.Object == "" || subjects.ID.MatchString(c.Object)) {
		return fmt.Errorf("the header's content is invalid: %d bytes, object %.50q, checksum %.50q", c.Size, c.Object,
			c.Sum)
	}
	return nil
}

func (o Instruction) Check() error {
	switch k := message.Kind(o.Kind); {
	case k != message.Train && k != message.Compute && !k.Tests() && o.Kind != EndKind:
		return fmt.Errorf("unknown kind of instruction %.50q", o.Kind)
	case o.Round < 0 || o.Round > maxRound || o.Client < 0 || o.Client >= o.Total || o.Total > subjects.MaxClient:
		return fmt.Errorf("invalid round %d for client %d of %d", o.Round+1, o.Client, o.Total)
	case o.Steps < 0 || o.Steps > maxRound:
		return fmt.Errorf("invalid number of steps %d", o.Steps)
	case !Label.MatchString(o.Statistic) || !Label.MatchString(o.Set) || !Label.MatchString(o.To):
		return fmt.Errorf("statistic %.50q, evaluation set %.50q or address %.50q is not a name", o.Statistic, o.Set,
			o.To)
	case o.ID != o.Identity():
		return fmt.Errorf("the instruction is damaged: it does not match its identity")
	}
	for _, id := range []string{o.Run, o.Try, o.Accepted, o.Safe} {
		if id != "" && !subjects.ID.MatchString(id) {
			return fmt.Errorf("%.50q is not an identity", id)
		}
	}
	return o.Content.check()
}

func (r Reply) Check() error {
	switch {
	case r.Client < 0 || r.Client > subjects.MaxClient:
		return fmt.Errorf("client %d", r.Client)
	case !subjects.ID.MatchString(r.Run) || !subjects.ID.MatchString(r.ID) || !subjects.ID.MatchString(r.Try):
		return fmt.Errorf("%.50q, %.50q or %.50q is not an identity", r.Run, r.ID, r.Try)
	case r.N < 0 || r.N > MaxExamples || r.Steps < 0 || r.Steps > maxRound:
		return fmt.Errorf("invalid counts: %d examples, %d steps", r.N, r.Steps)
	}
	return r.Content.check()
}

// Printable returns foreign text as one printable line.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > MaxError {
		text = strings.ToValidUTF8(text[:MaxError], "") + "..."
	}
	return text
}
