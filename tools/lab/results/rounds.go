package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
)

// Size limits in bytes. A line for 1,000 clients has 80 KB.
const (
	maxLine   = 32 << 20
	maxRounds = 1 << 30
)

// Round is one line of rounds.jsonl.
type Round struct {
	record.Record
	Sent Traffic
}

// Traffic is the traffic of all clients in both directions, from the first round to the end of some round.
type Traffic struct{ Bytes, Parameters float64 }

// add adds a round's traffic and sets the round's cumulative traffic.
func (s *Traffic) add(r *Round) {
	s.Bytes += float64(r.BytesUp) + float64(r.BytesDown)
	s.Parameters += float64(r.ParametersUp) + float64(r.ParametersDown)
	r.Sent = *s
}

// RunningMetrics computes the metrics of a run's rounds one after the other, as they arrive.
type RunningMetrics struct{ sent Traffic }

// Values returns every metric of the next round by its name.
func (f *RunningMetrics) Values(next record.Record) map[string]float64 {
	r := Round{Record: next}
	f.sent.add(&r)
	out := map[string]float64{}
	for _, name := range RoundMetrics([]*Group{{Runs: []*Run{{Rounds: []Round{r}}}}}) {
		m, err := ParseMetric(name)
		if err != nil {
			continue // the domain's name is not valid in a metric
		}
		if v, ok := m.read(r); ok {
			out[name] = v
		}
	}

	return out
}

// ReadRounds reads a rounds.jsonl up to the first invalid line. The rounds before it are valid even with an error. An
// unterminated last line is incomplete, and is dropped without an error. Lists by client exist only for rounds that all
// clients answered, because others are not comparable.
func ReadRounds(r io.Reader) ([]Round, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	var out []Round
	var sent Traffic
	var sizes []int
	total := 0
	for {
		line, err := readLine(b)
		if err == io.EOF {
			return out, nil
		}

		if total += len(line); err == nil && total > maxRounds {
			err = fmt.Errorf("has more than %d bytes", maxRounds)
		}

		var round Round
		if err == nil {
			round, err = parseRound(line, len(out))
		}

		if err != nil {
			return out, fmt.Errorf("line %d %w; number of rounds read before it: %d", len(out)+1, err, len(out))
		}

		if slices.Equal(sizes, round.TestSizes) {
			round.TestSizes = sizes // sizes rarely change, and may be many
		}

		sizes = round.TestSizes
		if len(round.Answered) > 0 {
			round.TestSizes = nil
			for _, e := range round.all() {
				e.PerClient = nil
			}
		}

		sent.add(&round)
		out = append(out, round)
	}
}

// all lists the evaluations on the clients' own test data.
func (r Round) all() []*metrics.Evaluation {
	return present(r.Evaluation, r.Evaluations.Global, r.Evaluations.Personal)
}

func present(list ...*metrics.Evaluation) []*metrics.Evaluation {
	return slices.DeleteFunc(list, func(e *metrics.Evaluation) bool { return e == nil })
}

// clients returns the length of the lists by client.
func (r Round) clients() int {
	n := 0
	for _, e := range r.all() {
		n = max(n, len(e.PerClient))
	}
	return n
}

// readLine reads up to the end of a line and drops the line end.
func readLine(b *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxLine:
			return nil, fmt.Errorf("has more than %d bytes", maxLine)
		}
	}
}

func parseRound(line []byte, want int) (Round, error) {
	var round Round
	if err := json.Unmarshal(line, &round.Record); err != nil {
		return round, fmt.Errorf("is not a round: %w", err)
	}

	if round.Round != want {
		return round, fmt.Errorf("is round %d, where %d is expected", round.Round, want)
	}

	if err := round.check(); err != nil {
		return round, err
	}

	if !round.Tested {
		round.Evaluation = nil
	}

	if round.Evaluation != nil && round.Evaluations == (record.Evaluations{}) {
		return round, fmt.Errorf("has an accuracy without its evaluations (global, personal)")
	}

	return round, nil
}

// check rejects impossible numbers, which would make means and drawings meaningless.
func (r Round) check() error {
	all := r.all()
	for _, tests := range []map[string]record.SetResult{r.EvaluationSets, r.NewClients} {
		for _, x := range tests {
			all = append(all, present(x.Evaluation, x.Evaluations.Global, x.Evaluations.Personal)...)
		}
	}

	if v := r.Validation; v != nil {
		all = append(all, present(v.Global, v.Personal)...)
	}

	for _, e := range all {
		if err := e.Check(); err != nil {
			return err
		}
	}

	for _, v := range r.shares() {
		if v < 0 || v > 1+1e-9 {
			return fmt.Errorf("has the share %v, which is not between 0 and 1", v)
		}
	}

	for name, v := range r.Notes {
		if math.Abs(v) > 1e30 {
			return fmt.Errorf("has the impossible note %.50q", name)
		}
	}

	for _, e := range r.all() {
		if !sameLength(r.clients(), len(e.PerClient), len(r.TestSizes)) {
			return fmt.Errorf("has lists of clients of different lengths")
		}
	}

	if err := checkTerms(r.Terms); err != nil {
		return err
	}

	for _, d := range r.Drift {
		if d.Client < 0 || !(d.Norm >= 0 && d.Norm < 1e30) || d.Cosine != nil && !(math.Abs(*d.Cosine) <= 1) {
			return fmt.Errorf("has an impossible update of client %d", d.Client)
		}
	}

	if r.Loss != nil && math.Abs(*r.Loss) > 1e30 || math.Abs(r.LR) > 1e30 ||
		!(r.Seconds >= 0 && r.Seconds < 1e12) || r.BytesUp < 0 || r.BytesDown < 0 || r.ParametersUp < 0 ||
		r.ParametersDown < 0 || r.Simulated != nil && !(r.Simulated.Seconds >= 0 && r.Simulated.Seconds < 1e30) {
		return fmt.Errorf("has an impossible loss, rate, time, or number of bytes or parameters")
	}

	return nil
}

// sameLength reports whether all other lists are absent or of length n.
func sameLength(n int, others ...int) bool {
	for _, o := range others {
		if o != 0 && o != n {
			return false
		}
	}
	return true
}

// shares returns the round's numbers outside its evaluations that must lie between 0 and 1.
func (r Round) shares() []float64 {
	var out []float64
	if n := r.BaseToNew; n != nil {
		for _, g := range []*metrics.Generalisation{n.Global, n.Personal} {
			if g != nil {
				out = append(out, g.Local, g.Base, g.New, g.HM, g.HM3)
			}
		}
	}

	if a := r.Attack; a != nil {
		for _, v := range []*float64{a.Global, a.Personal, a.SuccessGlobal, a.SuccessPersonal} {
			if v != nil {
				out = append(out, *v)
			}
		}
	}

	return out
}
