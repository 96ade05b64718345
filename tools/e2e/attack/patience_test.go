package attack

import (
	"strings"
	"testing"
	"time"

	"promptfed/federation/engine/message"
)

// A connected client that never answers delays three rounds until the deadline, and the end of the run; 12
// rounds, the test of the last round and the end would take 14 deadlines. Log and records state once that rounds do not
// wait for it.
func TestSilent(t *testing.T) {
	t.Parallel()
	const deadline = 2 * time.Second
	s := serve(t, 12, "--deadline", deadline.String())
	began := time.Now()
	s.background(part{client: 0, pause: time.Hour})
	s.joins(0, 1, 2)
	records := s.ends()
	if took := time.Since(began); took > 8*deadline {
		t.Errorf("it took %v", took)
	}
	counted(t, records, 1, 2)
	for i, r := range records {
		if want := i == 2; len(r.Unawaited) > 0 != want || want && r.Unawaited[0] != 0 {
			t.Errorf("the record of round %d has %v", i, r.Unawaited)
		}
	}
	if n := strings.Count(s.log.String(), "rounds do not wait for it"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// The server waits again for a client that was too slow for three deadlines, once it answers.
func TestSilentAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, 30, "--deadline", "2s")
	s.background(part{client: 0, sees: func(o message.Instruction) {
		if o.Round < 3 {
			time.Sleep(2500 * time.Millisecond)
		}
	}})
	s.joins(200*time.Millisecond, 1, 2)
	s.says("rounds do not wait for it")
	s.says("a client answers again")
	records := s.ends()
	counted(t, records[:3], 1, 2)
	counted(t, records[20:], 0, 1, 2)
}
