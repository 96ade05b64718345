package attack

import (
	"context"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
)

// A connected client that never answers delays rounds until it has missed three deadlines. Log and records state once
// that rounds do not wait for it from then on. A round counts no fewer than the two others, however slow they are.
func TestSilent(t *testing.T) {
	t.Parallel()
	s := serve(t, 30, "--deadline", "2s")
	for client, waits := range []func(context.Context, message.Instruction) error{never, nil, nil} {
		s.background(part{client: client, waits: waits})
	}
	records := s.ends()
	counted(t, records, 1, 2)
	last := slices.IndexFunc(records, unawaited)
	if last < 0 || last > 2 || slices.ContainsFunc(records[last+1:], unawaited) {
		t.Fatalf("the record of round %d is the first that says it", last+1)
	}
	long := func(r record.Record) bool { return r.Seconds >= 2 }
	for _, r := range records[:last+1] {
		if !long(r) {
			t.Errorf("round %d takes %v s; it waits for client 0", r.Round, r.Seconds)
		}
	}
	// one of these rounds is short, on a busy machine too
	if !slices.ContainsFunc(records[last+1:], func(r record.Record) bool { return !long(r) }) {
		t.Error("all rounds wait for client 0")
	}
	if n := strings.Count(s.log.String(), silence); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// silence is what the log says of client 0 when rounds do not wait for it any more.
const silence = "rounds do not wait for it until it answers\" client=0"

// unawaited reports whether a record says it.
func unawaited(r record.Record) bool { return slices.Contains(r.Unawaited, 0) }

// The server waits again for a client that was too slow for three deadlines, once it answers: until it has missed
// another one.
func TestSilentAnswers(t *testing.T) {
	t.Parallel()
	const answered = 4
	s := serve(t, answered+3, "--deadline", "2s")
	s.hold(answered)
	s.background(part{client: 0, waits: func(ctx context.Context, o message.Instruction) error {
		if o.Round == answered {
			return nil
		}
		return never(ctx, o)
	}})
	s.background(part{client: 1})
	s.background(part{client: 2})
	s.says(silence)
	s.says("a client answers again; rounds wait for it\" client=0")
	s.hold(0)
	records := s.ends()
	counted(t, records[:answered], 1, 2)
	counted(t, records[answered:answered+1], 0, 1, 2)
	counted(t, records[answered+1:], 1, 2)
	if !slices.ContainsFunc(records[:3], unawaited) || !unawaited(records[answered+1]) {
		t.Error("the records do not say twice that rounds do not wait for it")
	}
}
