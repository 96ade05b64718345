package record

import (
	"cmp"
	"encoding/json"
	"fmt"

	"promptfed/federation/engine/metrics"
)

// Format is the version of rounds.jsonl and summary.json (docs/formats.md). Files of version 1, which does not say its
// version, are read too.
const Format = 2

// former are the keys of format 1 that have other names now.
type former struct {
	Format         int                  `json:"format"`
	EvaluationSets map[string]SetResult `json:"exams"`
	Set            string               `json:"exam"`
}

// LaterFormatError is the error of a file that a later release wrote.
type LaterFormatError struct{ Format int }

func (e LaterFormatError) Error() string {
	return fmt.Sprintf("it has format %d, this program reads formats up to %d; use a later release of promptfed",
		e.Format, Format)
}

// read reads what is written now into a value without methods, and returns the keys of format 1. It refuses later
// formats.
func read(b []byte, plain any) (f former, err error) {
	if err = json.Unmarshal(b, &f); err == nil && f.Format > Format {
		err = LaterFormatError{f.Format}
	}
	if err == nil {
		err = json.Unmarshal(b, plain)
	}
	return f, err
}

// MarshalJSON writes the headline's keys behind the others.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record
	return metrics.MarshalWith(struct {
		Format int `json:"format"`
		plain
	}{Format, plain(r)}, r.Evaluation)
}

func (r *Record) UnmarshalJSON(b []byte) error {
	type plain Record
	old, err := read(b, (*plain)(r))
	if err != nil {
		return err
	}
	if r.EvaluationSets == nil {
		r.EvaluationSets = old.EvaluationSets
	}
	r.Evaluation, err = metrics.ReadEvaluation(b)
	return err
}

// MarshalJSON writes the keys of Evaluation behind the others.
func (s Summary) MarshalJSON() ([]byte, error) {
	type plain Summary
	return metrics.MarshalWith(struct {
		Format int `json:"format"`
		plain
	}{Format, plain(s)}, s.Evaluation)
}

func (s *Summary) UnmarshalJSON(b []byte) error {
	type plain Summary
	old, err := read(b, (*plain)(s))
	if err != nil {
		return err
	}
	if s.EvaluationSets == nil {
		s.EvaluationSets = old.EvaluationSets
	}
	s.Evaluation, err = metrics.ReadEvaluation(b)
	return err
}

func (u *Unanswered) UnmarshalJSON(b []byte) error {
	type plain Unanswered
	old, err := read(b, (*plain)(u))
	u.Set = cmp.Or(u.Set, old.Set)
	return err
}
