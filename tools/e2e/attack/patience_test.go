package attack

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/net/wait"
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
	if n := strings.Count(s.log.String(), silence+"0"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// silence is what the log says, with its number, of a client that rounds do not wait for any more.
const silence = "rounds do not wait for it until it has answered again\" client="

// unawaited reports whether a record says it.
func unawaited(r record.Record) bool { return slices.Contains(r.Unawaited, 0) }

// The server waits again for a client that was too slow for three deadlines, once it has answered ten times: until it
// has missed another deadline. Each of these answers counts, because the others answer after it.
func TestSilentAnswers(t *testing.T) {
	t.Parallel()
	const first, again = 4, "a client answers again; rounds wait for it\" client=0"
	s := serve(t, 60, "--deadline", "2s")
	answers := func(o message.Instruction) bool { return o.Round >= first && !strings.Contains(s.log.String(), again) }
	s.background(part{client: 0, waits: func(ctx context.Context, o message.Instruction) error {
		if answers(o) {
			return nil
		}
		return never(ctx, o)
	}})
	for _, client := range []int{1, 2} {
		s.background(part{client: client, waits: func(ctx context.Context, o message.Instruction) (err error) {
			for err == nil && answers(o) {
				if st, err := s.status(); err == nil && st.Clients[0].Replies > o.Round-first {
					return nil
				}
				err = wait.For(ctx, time.Millisecond)
			}
			return err
		}})
	}
	records := s.ends()

	s.says(silence + "0")
	s.says(again)
	with := func(r record.Record) bool { return slices.Contains(r.Clients, 0) }
	last := first + slices.IndexFunc(records[first:], func(r record.Record) bool { return !with(r) })
	if last < first+10 {
		t.Fatalf("client 0 answers %d times", last-first)
	}
	counted(t, records[:first], 1, 2)
	counted(t, records[first:last], 0, 1, 2)
	counted(t, records[last:], 1, 2)
	if !slices.ContainsFunc(records[:first], unawaited) || !slices.ContainsFunc(records[last:], unawaited) {
		t.Error("the records do not say twice that rounds do not wait for it")
	}
}
