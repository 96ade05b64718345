package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"promptfed/federation/engine"
)

// Limits of what is read, in bytes. A line of 1,000 clients has 80 KB.
const (
	maxLine   = 32 << 20
	maxRounds = 1 << 30
)

// Round is one line of rounds.jsonl. What follows from other fields is filled in where the line, of an older version,
// lacks it.
type Round struct {
	engine.Record
	// of a version that wrote both evaluations of every method, whether it has them or not, and of one accuracies alone
	Old bool
}

// ReadRounds reads a rounds.jsonl up to the first line that is no round; what it read counts even with an error. A last
// line without its end was not finished, and is left out without an error. Lists by client are those of rounds that all
// clients answered.
func ReadRounds(r io.Reader) ([]Round, error) {
	rounds, err := readLines(r)
	leaveOutPartial(rounds)
	return rounds, err
}

// leaveOutPartial drops the lists by client of rounds that some client did not answer: they compare with no others.
// Folders of older versions do not say whom a list is about; there those that are shorter than others are dropped.
func leaveOutPartial(rounds []Round) {
	clients := 0
	for _, r := range rounds {
		clients = max(clients, r.clients())
	}
	for i := range rounds {
		if r := &rounds[i]; len(r.Answered) > 0 || r.clients() < clients {
			r.TestSizes = nil
			for _, e := range r.all() {
				e.PerClient = nil
			}
		}
	}
}

// all lists the evaluations of the clients' own test data.
func (r Round) all() []*engine.Evaluation {
	return present(r.Evaluation, r.Evaluations.Global, r.Evaluations.Personal)
}

func present(list ...*engine.Evaluation) []*engine.Evaluation {
	return slices.DeleteFunc(list, func(e *engine.Evaluation) bool { return e == nil })
}

// clients is how many the lists by client are about.
func (r Round) clients() int {
	n := 0
	for _, e := range r.all() {
		n = max(n, len(e.PerClient))
	}
	return n
}

func readLines(r io.Reader) ([]Round, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	var out []Round
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
			return out, fmt.Errorf("line %d %w; the %d before it count", len(out)+1, err, len(out))
		}
		if n := len(out); n > 0 && slices.Equal(out[n-1].TestSizes, round.TestSizes) {
			round.TestSizes = out[n-1].TestSizes // they hardly ever change, and may be many
		}
		out = append(out, round)
	}
}

// readLine reads up to and without a line's end.
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
	var r Round
	var has struct {
		F1     *float64 `json:"f1"`
		Worst  *float64 `json:"worst"`
		Domain *float64 `json:"domain_mean"`

		Global   []float64 `json:"per_client_global"`
		Personal []float64 `json:"per_client_personal"`
	}
	if err := json.Unmarshal(line, &r.Record); err != nil {
		return r, fmt.Errorf("is no round: %w", err)
	}
	if err := json.Unmarshal(line, &has); err != nil {
		return r, fmt.Errorf("is no round: %w", err)
	}
	if r.Round != want {
		return r, fmt.Errorf("is round %d, where %d is expected", r.Round, want)
	}
	if err := r.check(); err != nil {
		return r, err
	}
	if !r.Tested {
		r.Evaluation = nil
	}
	if r.Old = r.Evaluation != nil && r.Evaluations == (engine.Evaluations{}); !r.Old {
		return r, nil
	}
	if has.F1 == nil {
		r.F1 = math.NaN()
	}
	if has.Worst == nil {
		r.Worst = lowest(r.PerClient)
	}
	r.Worst10, r.OwnClasses = math.NaN(), math.NaN()
	if has.Domain == nil && len(r.PerDomain) > 0 {
		r.DomainMean, r.DomainStd = engine.MeanStd(sortedValues(r.PerDomain))
	}
	r.Evaluations = engine.Evaluations{Global: r.older(r.Global, has.Global), Personal: r.older(r.Personal,
		has.Personal)}
	for name, x := range r.Exams {
		x.Evaluations = engine.Evaluations{Global: r.older(x.Global, nil), Personal: r.older(x.Personal, nil)}
		r.Exams[name] = x
	}
	return r, nil
}

// older is an evaluation as far as older versions wrote it beside the headline: accuracies.
func (r Round) older(accuracy *float64, perClient []float64) *engine.Evaluation {
	if accuracy == nil {
		return nil
	}
	none := math.NaN()
	e := &engine.Evaluation{Accuracy: *accuracy, Std: none, Weighted: none, F1: none, Worst: lowest(perClient),
		Worst10: none, OwnClasses: none, PerClient: perClient}
	if len(perClient) == 0 {
		return e
	}
	_, e.Std = engine.MeanStd(perClient)
	if len(perClient) == len(r.TestSizes) {
		right, total := 0.0, 0.0
		for i, n := range r.TestSizes {
			right, total = right+float64(n)*perClient[i], total+float64(n)
		}
		e.Weighted = right / max(1, total)
	}
	return e
}

// lowest is NaN of nothing.
func lowest(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return slices.Min(v)
}

// check refuses numbers that no run gives, which would make means and drawings meaningless.
func (r Round) check() error {
	all := r.all()
	for _, x := range r.Exams {
		all = append(all, present(x.Evaluation, x.Evaluations.Global, x.Evaluations.Personal)...)
	}
	for _, x := range r.NewClients {
		all = append(all, present(x.Evaluation, x.Evaluations.Global, x.Evaluations.Personal)...)
	}
	shares := r.shares()
	for _, e := range all {
		shares = slices.Concat(shares, []float64{e.Accuracy, e.Std, e.Weighted, e.F1, e.Worst, e.Worst10, e.OwnClasses,
			e.DomainMean, e.DomainStd},
			e.PerClient, sortedValues(e.PerDomain))
		if e.ECE != nil {
			shares = append(shares, *e.ECE)
		}
	}
	for _, v := range shares {
		if v < 0 || v > 1+1e-9 {
			return fmt.Errorf("has the share %v, which is not within 0 and 1", v)
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
	if math.Abs(r.Loss) > 1e30 || math.Abs(r.LR) > 1e30 || !(r.Seconds >= 0 && r.Seconds < 1e12) || r.BytesUp < 0 ||
		r.BytesDown < 0 {
		return fmt.Errorf("has an impossible loss, rate, time or number of bytes")
	}
	return nil
}

// sameLength tells whether further lists are absent or of length n.
func sameLength(n int, others ...int) bool {
	for _, o := range others {
		if o != 0 && o != n {
			return false
		}
	}
	return true
}

func sortedValues(m map[string]float64) []float64 {
	var out []float64
	for _, k := range sortedKeys(m) {
		out = append(out, m[k])
	}
	return out
}
