package record

import (
	"encoding/json"
	"fmt"

	"promptfed/federation/engine/metrics"
)

// Format is the version of rounds.jsonl and summary.json (docs/formats.md).
const Format = 2

// FormatError is the error of a file that another release wrote.
type FormatError struct{ Format int }

func (e FormatError) Error() string {
	return fmt.Sprintf("it has format %d, this program reads format %d; use the release of promptfed that wrote it",
		e.Format, Format)
}

// read reads a value without methods and the evaluation beside it, and refuses other formats.
func read(data []byte, plain any) (*metrics.Evaluation, error) {
	var f struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}

	if f.Format != Format {
		return nil, FormatError{f.Format}
	}

	if err := json.Unmarshal(data, plain); err != nil {
		return nil, err
	}

	return metrics.ReadEvaluation(data)
}

// MarshalJSON writes the headline's keys behind the others.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record
	return metrics.MarshalWith(struct {
		Format int `json:"format"`
		plain
	}{Format, plain(r)}, r.Evaluation)
}

func (r *Record) UnmarshalJSON(b []byte) (err error) {
	type plain Record
	r.Evaluation, err = read(b, (*plain)(r))
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

func (s *Summary) UnmarshalJSON(b []byte) (err error) {
	type plain Summary
	s.Evaluation, err = read(b, (*plain)(s))
	return err
}
