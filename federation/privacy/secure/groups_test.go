package secure_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/federation/privacy/secure"
)

// garbage lets a client send random numbers instead of its vector in some rounds.
func garbage(client int, rounds func(round int) bool) flaky {
	return flaky{change: func(o message.Instruction, r *message.Reply) {
		if r.Client != client || o.Kind != message.Train || !rounds(o.Round) {
			return
		}
		x := r.Upload.Extra["guard/masked"].Clone()
		for i := 1; i < x.Len()-1; i++ { // the first is the size, and the last may be padded
			x.Ints[i] = rand.Int64()
		}
		r.Upload.Extra["guard/masked"] = x
	}}
}

// A round with an impossible vector is skipped, and no other: shared parameters do not change, and nobody is named.
func TestGarbage(t *testing.T) {
	e, l := experiment(t, config, "promptfl", nil, options{"tokens": 2})
	r := enginetest.Run(t, e, garbage(2, func(round int) bool { return round == 1 }).around(l))
	for _, rec := range r.Records {
		if rec.Round == 1 {
			skipped(t, rec, "round 2: secure aggregation: the sum over 5 clients is not used",
				"uploaded an invalid vector")
		} else if !slices.Equal(rec.Clients, []int{0, 1, 2, 3, 4}) || len(rec.Warnings) > 0 {
			t.Errorf("round %d counts %v, %v", rec.Round+1, rec.Clients, rec.Warnings)
		}
		if len(rec.Refused) > 0 {
			t.Errorf("round %d names %v", rec.Round+1, rec.Refused)
		}
	}
}

// tenClients returns an experiment of ten toy clients with sums of three clients or more.
func tenClients(t *testing.T, rounds int) (*spec.Experiment, *secure.Aggregation) {
	t.Helper()
	c := config
	c.Least = 3
	m := methodtest.Build(t, "promptfl", nil, options{"tokens": 2})
	return experimentOf(t, c, m, rounds, 4, 9, 3, 5, 6, 2, 4, 4, 3, 5)
}

// One of ten clients, with sums of three or more, sends garbage in rounds 1 to 7. The first round is skipped. The next
// ones have two groups of five and count the group without the liar, as if the others had not uploaded. Few clients
// remain that were in no valid sum, the liar among them. Five rounds after its last lie there is one sum again.
func TestGroups(t *testing.T) {
	const liar, lies, rounds = 4, 7, 14
	e, l := tenClients(t, rounds)
	if f := l.Guarantees(); f.Least != 3 {
		t.Errorf("sums of %d clients, want 3", f.Least)
	}
	f := garbage(liar, func(round int) bool { return round < lies })
	var sums [][]int // clients whose shares each session asks for
	f.seen = func(o message.Instruction, _ []message.Reply) {
		if o.Statistic == "secagg-reveal" {
			sums = append(sums, o.Clients)
		}
	}
	result := enginetest.Run(t, e, f.around(l))
	counted, said := map[int][]int{}, ""
	for _, rec := range result.Records {
		in := slices.Contains(rec.Clients, liar)
		counted[rec.Round] = rec.Clients
		switch n := len(rec.Clients); {
		case rec.Round == 0:
			skipped(t, rec, "not used")
		case rec.Round < lies && (n != 5 || in || rec.Notes["secagg_groups"] != 2 ||
			rec.Notes["secagg_groups_valid"] != 1):
			t.Errorf("round %d counts %v with %v", rec.Round+1, rec.Clients, rec.Notes)
		case rec.Round >= lies && n != 10:
			t.Errorf("round %d counts %v", rec.Round+1, rec.Clients)
		case rec.Round >= lies && rec.Round < lies+5 && rec.Notes["secagg_groups"] != 2,
			rec.Round >= lies+5 && rec.Notes["secagg_groups"] != 0:
			t.Errorf("round %d has %v groups", rec.Round+1, rec.Notes["secagg_groups"])
		}
		if len(rec.Refused) > 0 {
			t.Errorf("round %d names %v", rec.Round+1, rec.Refused)
		}
		said += strings.Join(rec.Warnings, "\n") + "\n"
	}
	if !strings.Contains(said, "were in no valid sum in 6 rounds of groups") || strings.Contains(said, "in 7 rounds") ||
		len(sums) != rounds {
		t.Error(said)
	}
	plain, _ := tenClients(t, rounds)
	want := enginetest.Run(t, plain, engine.Settings{
		Wrap: func(c message.Cohort) message.Cohort {
			return skipsFirstRound{methodtest.LoseReplies(func(round, client int) bool {
				return round > 0 && !slices.Contains(counted[round], client)
			})(c)}
		}})
	if d := maxDiff(t, result, want); !(d < 1e-4) { // half a step of 1.2e-7 in each round, amplified by training
		t.Errorf("prompts are %g from those of the clients that count", d)
	}
}

// skipsFirstRound is a cohort whose round 0 has no sum.
type skipsFirstRound struct{ message.Cohort }

func (c skipsFirstRound) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := c.Cohort.Run(ctx, o)
	if o.Kind == message.Train && o.Round == 0 {
		replies = []message.Reply{{Client: method.AggregatedClient, Skipped: true}}
	}
	return replies, err
}
