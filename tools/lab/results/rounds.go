package results

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

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
			round.Record, err = record.ParseLine(line, len(out))
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
			for _, e := range round.OwnEvaluations() {
				e.PerClient = nil
			}
		}

		sent.add(&round)
		out = append(out, round)
	}
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
