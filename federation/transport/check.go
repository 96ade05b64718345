package transport

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"promptfed/federation/engine/message"
	"promptfed/runtime/tensor"
)

// Bounds of what a message may say.
const (
	maxTensors = 4096
	maxRound   = 1 << 30
	maxError   = 500

	maxExamples = 1 << 53 // of a client; larger numbers have no exact float64
)

var (
	tensorName = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	sumText    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hash       = regexp.MustCompile(`^[0-9a-f]{32}$`)
	word       = regexp.MustCompile(`^[A-Za-z0-9_ .,:/()-]{0,100}$`)
)

// checkNames refuses tensors whose names could be taken for anything else.
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

func (c content) check() error {
	if c.Size < 0 || !sumText.MatchString(c.Sum) || !(c.Object == "" || hash.MatchString(c.Object)) {
		return fmt.Errorf("the header tells of %d bytes in %.50q with checksum %.50q", c.Size, c.Object, c.Sum)
	}
	return nil
}

func (o order) check() error {
	switch k := message.Kind(o.Kind); {
	case k != message.Train && k != message.Compute && !k.Tests() && o.Kind != endKind:
		return fmt.Errorf("unknown kind of order %.50q", o.Kind)
	case o.Round < 0 || o.Round > maxRound || o.Client < 0 || o.Client >= o.Of || o.Of > maxClient:
		return fmt.Errorf("round %d for client %d of %d", o.Round, o.Client, o.Of)
	case o.Steps < 0 || o.Steps > maxRound:
		return fmt.Errorf("%d steps", o.Steps)
	case !word.MatchString(o.Survey) || !word.MatchString(o.Exam) || !word.MatchString(o.To):
		return fmt.Errorf("survey %.50q, exam %.50q, for %.50q", o.Survey, o.Exam, o.To)
	case o.ID != o.identity():
		return fmt.Errorf("the order is damaged: it does not fit its identity")
	}
	for _, id := range []string{o.Run, o.Try, o.Accepted, o.Safe} {
		if id != "" && !hash.MatchString(id) {
			return fmt.Errorf("%.50q is no identity", id)
		}
	}
	return o.content.check()
}

func (r reply) check() error {
	switch {
	case r.Client < 0 || r.Client > maxClient:
		return fmt.Errorf("client %d", r.Client)
	case !hash.MatchString(r.Run) || !hash.MatchString(r.ID) || !hash.MatchString(r.Try):
		return fmt.Errorf("%.50q, %.50q or %.50q is no identity", r.Run, r.ID, r.Try)
	case r.N < 0 || r.N > maxExamples || r.Steps < 0 || r.Steps > maxRound:
		return fmt.Errorf("%d examples, %d steps", r.N, r.Steps)
	}
	return r.content.check()
}

// plain makes one line of a text that came from elsewhere, to be shown.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "..."
	}
	return text
}
