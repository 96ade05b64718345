package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// notesRound is a method whose server notes the round's number and accepts rounds without clients.
type notesRound struct{ method.Method }

func (m notesRound) Merge(g *method.Global, ups []method.Upload) error {
	g.Notes["half"] = float64(g.Round) / 2
	g.Draws.Normal(g.Rand("noise"), "noise", 1)
	if len(ups) == 0 {
		return nil
	}
	return m.Method.Merge(g, ups)
}

// A method's notes are in the record of their round, and those of the last round in the summary, also in a resumed run.
func TestNotes(t *testing.T) {
	e := toy(t)
	e.Method, e.Plan.TestEvery = notesRound{e.Method}, 2
	dir := t.TempDir()
	r := mustRun(t, e, engine.Settings{Dir: dir})
	for i, rec := range r.Records {
		if len(rec.Notes) != 1 || rec.Notes["half"] != float64(i)/2 {
			t.Errorf("round %d notes %v", i, rec.Notes)
		}
	}
	var s record.Summary
	goldentest.ReadJSON(t, filepath.Join(dir, record.SummaryFile), &s)
	if s.Notes["half"] != 1 {
		t.Errorf("summary notes %v", s.Notes)
	}
	rounds := string(filetest.Read(t, filepath.Join(dir, record.RoundsFile)))
	if strings.Count(rounds, `"notes":{"half":`) != 3 {
		t.Error(rounds)
	}
}

// With Poisson sampling each of 4 clients trains in about half of 60 rounds, and a round may have nobody.
func TestPoissonSampling(t *testing.T) {
	e := toy(t)
	e.Method, e.Plan.TestEvery = notesRound{e.Method}, 60
	e.Plan.Rounds, e.Plan.Participation, e.Plan.Poisson = 60, 0.5, true
	times, sizes, traced := map[int]int{}, map[int]int{}, trace.NewRecorder()
	for _, rec := range mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: traced}}).Records {
		if traced.Tensors[fmt.Sprintf("r%d/draw/noise", rec.Round)] == nil {
			t.Errorf("round %d of %v has no noise in the trace", rec.Round, rec.Clients)
		}
		sizes[len(rec.Clients)]++
		if !slices.IsSorted(rec.Clients) {
			t.Errorf("clients %v", rec.Clients)
		}
		for _, c := range rec.Clients {
			times[c]++
		}
		if len(rec.Clients) == 0 && (rec.BytesUp != 0 || rec.Loss != nil) {
			t.Errorf("a round of nobody has %+v", rec)
		}
	}
	for c := range 4 {
		if n := times[c]; n < 18 || n > 42 { // 30 ± 3 standard deviations of a binomial
			t.Errorf("client %d trained %d times", c, n)
		}
	}
	if sizes[0] == 0 || sizes[4] == 0 || sizes[2] == 0 {
		t.Errorf("60 rounds had the sizes %v", sizes)
	}
	f := e.Fingerprint()
	if e.Plan.Poisson = false; e.Fingerprint() == f {
		t.Error("the fingerprint does not tell how clients are drawn")
	}
}

// doublingGuard is a guard that doubles its clients' uploads and answers an instruction of its own.
type doublingGuard struct{}

func (doublingGuard) Answer(client int, o message.Instruction) (tensor.Map, bool, error) {
	if o.Statistic != "guard/number" {
		return nil, false, nil
	}
	return tensor.Map{"n": tensor.Scalar(float32(client))}, true, nil
}

func (doublingGuard) Protect(_ int, _ message.Instruction, up *method.Upload, stats *message.Stats) error {
	up.Shared = up.Shared.Clone().Scale(2)
	*stats = message.Stats{}
	return nil
}

// meanCohort returns one reply for all clients: half the mean of their uploads.
type meanCohort struct{ message.Cohort }

func (c meanCohort) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Kind != message.Train {
		return c.Cohort.Run(ctx, o)
	}
	ask := o
	ask.Kind, ask.Statistic = message.Compute, "guard/number"
	answers, err := c.Cohort.Run(ctx, ask)
	if err != nil {
		return nil, err
	}
	replies, err := c.Cohort.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	sum := message.Reply{Client: method.AggregatedClient, Notes: map[string]float64{"heard": 0}}
	var ups []method.Upload
	for i, r := range replies {
		sum.Sum = append(sum.Sum, r.Client)
		sum.Notes["heard"] += float64(answers[i].Upload.Extra["n"].Data[0])
		sum.Upload.N += r.Upload.N
		ups = append(ups, r.Upload)
	}
	sum.Upload.Client = method.AggregatedClient
	sum.Upload.Shared = method.Mean(ups, func(u method.Upload) tensor.Map { return u.Shared }).Scale(0.5)
	return []message.Reply{sum}, nil
}

// A guard changes a client's uploads, a layer around the cohort sees only these, and the server continues from one
// reply for many clients. Shared prompts and all clients' states equal those of a plain run, to the last bit, in
// messages too.
func TestGuardAndSum(t *testing.T) {
	for _, encode := range []bool{false, true} {
		plain := mustRun(t, toy(t), engine.Settings{Encode: encode})
		set := engine.Settings{Client: client.Settings{Guard: doublingGuard{}}, Encode: encode,
			Wrap: func(c message.Cohort) message.Cohort { return meanCohort{c} }}
		sum := mustRun(t, toy(t), set)
		if len(plain.Prompts) != len(sum.Prompts) {
			t.Errorf("%v and %v", plain.Prompts.Names(), sum.Prompts.Names())
		}
		for name, want := range plain.Prompts {
			if got := sum.Prompts[name]; got == nil || !slices.Equal(got.Data, want.Data) {
				t.Errorf("%s differs", name)
			}
		}
		for i, rec := range sum.Records {
			if !slices.Equal(rec.Clients, []int{0, 1, 2, 3}) || rec.Notes["heard"] != 6 || *rec.Loss != 0 ||
				*plain.Records[i].Loss == 0 {
				t.Errorf("round %d: %+v", i, rec)
			}
		}
	}
}

// A protected upload is refused if it also holds parameters or counts examples. Run specs name secure aggregation.
func TestSealedUploads(t *testing.T) {
	o := message.Instruction{Kind: message.Train, Clients: []int{0}, Shared: tensor.Map{"ctx": tensor.New(2, 2)},
		Guarded: tensor.Specs{{Name: "guard/masked", Int: true, Shape: []int{1}}}}
	protected := method.Upload{N: 1, Extra: tensor.Map{"guard/masked": tensor.OfInts([]int64{1}, 1)}}
	if err := o.Check(message.Reply{Upload: protected}); err != nil {
		t.Error(err)
	}
	open := protected
	open.Shared = tensor.Map{"ctx": tensor.New(2, 2)}
	says(t, o.Check(message.Reply{Upload: open}), "parameters [ctx]", "must be protected")
	counted := protected
	counted.N = 7
	says(t, o.Check(message.Reply{Upload: counted}), "counts 7 examples", "must be protected")
	o.Guarded = nil
	says(t, o.Check(message.Reply{Upload: protected}), "ctx")
	e := toy(t)
	plain := e.RunSpec()
	e.Secure = "threshold 0.6"
	says(t, plain.Mismatch(e.RunSpec()), "secure aggregation", "threshold 0.6")
	says(t, e.RunSpec().Mismatch(plain), "secure aggregation")
}
