package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simulatedtime"
	"promptfed/federation/engine/spec"
)

// withSimulatedTime returns a toy of four clients, with private prompts and a shared one, whose turns take simulated
// time.
func withSimulatedTime(t testing.TB, change func(*simulatedtime.Config)) *spec.Experiment {
	t.Helper()
	m := buildMethod(t, "promptfl", []string{"ditto"}, map[string]any{"tokens": 2})
	e := withMethod(m)
	e.Plan.Rounds = 4
	c := simulatedtime.Defaults()
	c.Speeds = "lognormal"
	change(&c)
	var err error
	if e.SimulatedTime, err = c.Plan(len(e.Clients), 1); err != nil {
		t.Fatal(err)
	}
	return e
}

func buffered(t testing.TB) *spec.Experiment {
	return withSimulatedTime(t, func(c *simulatedtime.Config) { c.FedBuff.Buffer = 2 })
}

// TestFedBuffIsFedAvg: if all clients are equally fast and the buffer holds all of them, FedBuff is FedAvg, byte for
// byte, in the time of the slowest client's rounds. Clients have 9, 5, 6 and 3 examples in batches of 4, so at most
// three steps of 2 s.
func TestFedBuffIsFedAvg(t *testing.T) {
	whole := withSimulatedTime(t, func(c *simulatedtime.Config) { c.Speeds, c.Step = "constant", 2 })
	rounds := mustRun(t, whole, engine.Settings{Dir: t.TempDir()})
	dirs := []string{t.TempDir(), t.TempDir()}
	mustRun(t, whole, engine.Settings{Dir: dirs[0]})
	mustRun(t, withSimulatedTime(t, func(c *simulatedtime.Config) {
		c.Speeds, c.Step, c.FedBuff.Buffer, c.FedBuff.Weights = "constant", 2, 4, "examples"
	}), engine.Settings{Dir: dirs[1], Workers: 3})
	if prompts(t, dirs[0]) != prompts(t, dirs[1]) {
		t.Error("FedBuff with all clients in the buffer is not FedAvg")
	}
	for i, r := range rounds.Records {
		if r.Simulated.Seconds != 6*float64(i+1) {
			t.Errorf("round %d ends at %v s, want %v", i+1, r.Simulated.Seconds, 6*(i+1))
		}
	}
	if rounds.Summary.Simulated != 24 {
		t.Errorf("the run took %v s, want 24", rounds.Summary.Simulated)
	}
}

// TestFedBuffRepeats: a run has the same bytes with any number of workers and through encoded messages, and some
// updates are stale.
func TestFedBuffRepeats(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	first := mustRun(t, buffered(t), engine.Settings{Dir: dirs[0], Workers: 1})
	mustRun(t, buffered(t), engine.Settings{Dir: dirs[1], Workers: 4, Encode: true})
	if prompts(t, dirs[0]) != prompts(t, dirs[1]) {
		t.Error("what was learned depends on workers or messages")
	}
	stale := func(r record.Record) bool { return slices.Max(r.Simulated.Staleness) > 0 }
	if !slices.ContainsFunc(first.Records, stale) {
		t.Error("no update was stale: the test shows nothing")
	}
	for _, r := range first.Records {
		if len(r.Clients) != 2 {
			t.Errorf("round %d had clients %v, want two", r.Round+1, r.Clients)
		}
	}
}

// TestKilledUnderFedBuff: uploads under way are part of the checkpoint.
func TestKilledUnderFedBuff(t *testing.T) {
	killed(t, func(t testing.TB) *spec.Experiment {
		e := buffered(t)
		e.Plan.Rounds, e.Plan.TestEvery = 60, 3
		return e
	}, 1, 8, 20, 40)
}

// TestAllLate: a round whose clients are all late changes nothing and takes the deadline.
func TestAllLate(t *testing.T) {
	none := func(c *simulatedtime.Config) { c.Deadline = 1e-6 }
	e := withSimulatedTime(t, none)
	e.Plan.Rounds = 1
	dir := t.TempDir()
	r := mustRun(t, e, engine.Settings{Dir: dir})
	if rec := r.Records[0]; len(rec.Clients) != 0 || rec.Loss != nil || len(rec.Simulated.Late) != 4 ||
		rec.Simulated.Seconds != 1e-6 || rec.BytesUp == 0 {
		t.Errorf("%+v %+v", rec, rec.Simulated)
	}
	if _, err := os.Stat(filepath.Join(dir, record.SummaryFile)); err != nil {
		t.Error(err)
	}
}

// TestSimulatedTimeAlone: secure aggregation needs the clients that began the round.
func TestSimulatedTimeAlone(t *testing.T) {
	layer := func(c message.Cohort) message.Cohort { return c }
	refused(t, buffered(t), engine.Settings{Wrap: layer}, "simulated_time", "secure_aggregation")
}
