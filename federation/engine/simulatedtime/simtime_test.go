package simulatedtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// addingClients are clients of one shared number: client k adds k+1 to the number it receives.
type addingClients struct {
	message.Cohort // nil: nothing else is called
	accepted       [][]int
	silent         bool // no client answers
}

func (m *addingClients) Report() message.Report       { return message.Report{} }
func (m *addingClients) Save() (message.Saved, error) { return message.Saved{}, nil }
func (m *addingClients) Load(message.Saved) error     { return nil }

func (m *addingClients) Run(_ context.Context, o message.Instruction) ([]message.Reply, error) {
	if m.silent {
		return nil, nil
	}
	var out []message.Reply
	for _, id := range o.Clients {
		up := method.Upload{Client: id, N: 10 * (id + 1),
			Shared: tensor.Map{"ctx": one(o.Shared["ctx"].Data[0] + float32(id+1))}}
		out = append(out, message.Reply{Client: id, Upload: up, Stats: message.Stats{Steps: 1, Loss: float64(id)},
			Up: 100, Down: 50})
	}
	return out, nil
}

func (m *addingClients) Accept(_ int, clients []int) error {
	m.accepted = append(m.accepted, clients)
	return nil
}

func one(v float32) *tensor.Tensor {
	t := tensor.New(1)
	t.Data[0] = v
	return t
}

func instruction(round int, theta float32) message.Instruction {
	return message.Instruction{Kind: message.Train, Round: round, Clients: []int{0, 1, 2}, Total: 3,
		Shared: tensor.Map{"ctx": one(theta)}}
}

// threeClients returns a plan of three clients whose only step takes 1, 2 and 5 seconds.
func threeClients(fedbuff FedBuff) *Plan {
	return &Plan{Speeds: []Speed{{Step: 1}, {Step: 2}, {Step: 5}}, FedBuff: fedbuff, Seed: 3}
}

// step is the expected result of one step of the server.
type step struct {
	clients, stale, late []int
	seconds              float64
	uploads              []float64 // as the server receives them
	trained              []int
}

// checkSchedule runs steps of a server that takes the mean of uploads, and compares. Before every step it saves all
// state and loads it into another cohort.
func checkSchedule(t *testing.T, p *Plan, want []step) {
	t.Helper()
	theta := float32(0)
	var saved message.Saved
	for v, w := range want {
		clients := &addingClients{}
		c := New(clients, p, []int{0, 1, 2}, 3, func(int) int { return 1 })
		if v > 0 {
			b, err := message.EncodeTensors(saved.Tensors)
			goldentest.NoError(t, err)
			if saved.Tensors, err = message.DecodeTensors(b); err != nil {
				t.Fatal(err)
			}
			goldentest.NoError(t, c.Load(saved))
		}
		replies, err := c.Run(context.Background(), instruction(v, theta))
		goldentest.NoError(t, err)
		goldentest.NoError(t, c.Accept(v, message.ClientsOf(replies)))
		report := c.Report()
		took := report.Simulated
		got := step{clients: message.ClientsOf(replies), stale: took.Staleness, late: took.Late, seconds: took.Seconds,
			trained: clients.accepted[0]}
		mean := 0.0
		for i, r := range replies {
			x := float64(r.Upload.Shared["ctx"].Data[0])
			got.uploads = append(got.uploads, x)
			mean += x / float64(len(replies))
			if math.Abs(x-w.uploads[i]) > 1e-5 {
				t.Errorf("step %d: upload %d is %v, want %v", v, i, x, w.uploads[i])
			}
			if r.Upload.N != 1 {
				t.Errorf("step %d: an upload counts %d examples, want 1", v, r.Upload.N)
			}
		}
		got.uploads = w.uploads
		if !reflect.DeepEqual(got, w) || report.Up != 100*len(w.late) || report.Down != 50*len(w.late) {
			t.Errorf("step %d is\n%+v, want\n%+v; its lost uploads are %+v", v, got, w, report)
		}
		theta = float32(mean)
		saved, err = c.Save()
		goldentest.NoError(t, err)
	}
}

// TestFedBuff follows a schedule worked out by hand, with two uploads to a step. All start at 0 s. Clients 0 and 1
// arrive at 1 and 2 s and start again; they fill the buffer again at 3 and 4 s. At 5 s clients 0 and 2 arrive, 2 with
// an update that is two steps old: 3/sqrt(3). At 6 s clients 0 and 1 arrive, 1 with one that is one step old.
func TestFedBuff(t *testing.T) {
	theta3 := (4 + 3 + math.Sqrt(3)) / 2
	checkSchedule(t, threeClients(FedBuff{Buffer: 2, Staleness: sqrt, Weights: uniform}), []step{
		{clients: []int{0, 1}, stale: []int{0, 0}, seconds: 2, uploads: []float64{1, 2}, trained: []int{0, 1, 2}},
		{clients: []int{0, 1}, stale: []int{0, 0}, seconds: 4, uploads: []float64{2.5, 3.5}, trained: []int{0, 1}},
		{clients: []int{0, 2}, stale: []int{0, 2}, seconds: 5, uploads: []float64{4, 3 + math.Sqrt(3)},
			trained: []int{0, 1}},
		{clients: []int{0, 1}, stale: []int{0, 1}, seconds: 6, uploads: []float64{theta3 + 1, theta3 + math.Sqrt2},
			trained: []int{0, 2}},
	})
}

// TestMaxStaleness: at 5 s the update of client 2 is two steps old and is dropped. Client 2 starts again at once, and
// client 1 fills the buffer at 6 s.
func TestMaxStaleness(t *testing.T) {
	checkSchedule(t, threeClients(FedBuff{Buffer: 2, Staleness: constant, MaxStaleness: 1, Weights: uniform}), []step{
		{clients: []int{0, 1}, stale: []int{0, 0}, seconds: 2, uploads: []float64{1, 2}, trained: []int{0, 1, 2}},
		{clients: []int{0, 1}, stale: []int{0, 0}, seconds: 4, uploads: []float64{2.5, 3.5}, trained: []int{0, 1}},
		{clients: []int{0, 1}, stale: []int{0, 0}, late: []int{2}, seconds: 6, uploads: []float64{4, 5},
			trained: []int{0, 1, 2}},
	})
}

// TestFactor: expected values follow from the formulas by hand.
func TestFactor(t *testing.T) {
	for name, want := range map[string][]float64{constant: {1, 1, 1}, sqrt: {1, 0.5, 1 / math.Sqrt(7)},
		hinge: {1, 1, 1.0 / 21}} {
		for i, x := range []int{0, 3, 6} {
			if got := (FedBuff{Staleness: name}).factor(x); math.Abs(got-want[i]) > 1e-15 {
				t.Errorf("%s of %d is %v, want %v", name, x, got, want[i])
			}
		}
	}
}

// TestDeadline: turns take 1, 2 and 5 s. With a deadline of 3 s the last is late and the round ends without it; without
// a deadline the round ends at 5 s. Messages of 150 bytes at 100 bytes a second take another 1.5 s.
func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		deadline, bandwidth float64
		count               bool
		came, late          []int
		seconds             float64
	}{
		{0, 0, false, []int{0, 1, 2}, nil, 5},
		{3, 0, false, []int{0, 1}, []int{2}, 3},
		{3, 0, true, []int{0, 1, 2}, []int{2}, 5},
		{5, 0, false, []int{0, 1, 2}, nil, 5},
		{3, 100, false, []int{0}, []int{1, 2}, 3},
		{0, 100, false, []int{0, 1, 2}, nil, 6.5},
		{0.5, 0, false, nil, []int{0, 1, 2}, 0.5},
	} {
		p := threeClients(FedBuff{})
		p.Deadline, p.Count = c.deadline, c.count
		for i := range p.Speeds {
			p.Speeds[i].Bandwidth = c.bandwidth
		}
		clients := New(&addingClients{}, p, nil, 0, nil)
		for round := range 2 {
			replies, err := clients.Run(context.Background(), instruction(round, 0))
			goldentest.NoError(t, err)
			r := clients.Report()
			lost := 0
			if !c.count {
				lost = len(c.late)
			}
			if !slices.Equal(message.ClientsOf(replies), c.came) || !slices.Equal(r.Simulated.Late, c.late) ||
				r.Simulated.Seconds != c.seconds*float64(round+1) || r.Up != 100*lost || r.Down != 50*lost {
				t.Errorf("%+v: %v came, %+v", c, message.ClientsOf(replies), r)
			}
		}
	}
}

// TestSpeeds: the median and the spread of the logarithm are those configured, within three standard errors of 4,000
// draws (0.5 * 1.2533/sqrt(4000) = 0.0099 of the median's logarithm, 0.5/sqrt(8000) = 0.0056 of the spread). A client's
// speed does not depend on the number of clients.
func TestSpeeds(t *testing.T) {
	c := Defaults()
	c.Speeds, c.Step, c.Bandwidth = lognormal, 2, 7
	p, err := c.Plan(4000, 1)
	goldentest.NoError(t, err)
	var logs []float64
	sum, squares := 0.0, 0.0
	for _, s := range p.Speeds {
		x := math.Log(s.Step / 2)
		logs = append(logs, x)
		sum, squares = sum+x, squares+x*x
		if s.Bandwidth != 7 {
			t.Fatal(s)
		}
	}
	slices.Sort(logs)
	spread := math.Sqrt(squares/4000 - sum*sum/4000/4000)
	if math.Abs(logs[2000]) > 0.03 || math.Abs(spread-0.5) > 0.017 {
		t.Errorf("the logarithm's median is %v, want 0, and its spread %v, want 0.5", logs[2000], spread)
	}
	few, _ := c.Plan(3, 1)
	if !slices.Equal(few.Speeds, p.Speeds[:3]) {
		t.Errorf("%v, and of 4000 clients %v", few.Speeds, p.Speeds[:3])
	}
	c.Speeds = uniform
	p, _ = c.Plan(4000, 1)
	for client, s := range p.Speeds { // a draw from 0 to 1 makes 1 to 3 seconds
		drawn := method.Rand(1, "speed", strconv.Itoa(client)).Float64()
		if s.Step < 1 || s.Step > 3 || math.Abs(s.Step-(1+2*drawn)) > 1e-12 {
			t.Fatalf("%v is not %v from 1 to 3 seconds", s.Step, drawn)
		}
	}
}

func TestSpeedsOfFile(t *testing.T) {
	dir := t.TempDir()
	for text, words := range map[string][]string{
		"client,step_seconds,bandwidth\n1,0.5,100\n0,2,0\n7,1,1\n":      nil,
		"\xef\xbb\xbfclient,step_seconds,bandwidth\n1,0.5,100\n0,2,0\n": nil, // as Excel saves it
		"client,seconds\n0,1\n":                            {"client,step_seconds,bandwidth"},
		"client,step_seconds,bandwidth\n0,1,0\n":           {"no line for client 1 of 2"},
		"client,step_seconds,bandwidth\n0,1,0\n0,1,0\n":    {"line 3", "client 0", "twice"},
		"client,step_seconds,bandwidth\n0,-1,0\n":          {"line 2", "above 0"},
		"client,step_seconds,bandwidth\n0,1\n":             {"wrong number of fields"},
		"client,step_seconds,bandwidth\n0,NaN,0\n1,1,1\n":  {"line 2", "above 0"},
		"client,step_seconds,bandwidth\n0,1,Inf\n1,1,1\n":  {"line 2", "from 0"},
		"client,step_seconds,bandwidth\n0,Inf,Inf\n":       {"line 2", "from 0"},
		"client,step_seconds,bandwidth\nzero,1,0\n1,1,1\n": {"line 2", "client number from 0"},
		"": {"first line"},
		"\"client,step_seconds,bandwidth\"\n\"0,1,0\"\n":            {"first line"}, // one column
		"client,step_seconds,bandwidth\n-1,1,0\n0,1,1\n1,2,3\n4,4,": {"line 2"},
	} {
		c := Defaults()
		c.Speeds, c.File = fromFile, filepath.Join(dir, "speeds.csv")
		filetest.Write(t, c.File, text)
		p, err := c.Plan(2, 1)
		if words != nil {
			goldentest.WantError(t, err, append(words, c.File)...)
		} else if err != nil || !slices.Equal(p.Speeds, []Speed{{2, 0}, {0.5, 100}}) {
			t.Errorf("%+v %v", p, err)
		}
	}
}

func TestCheck(t *testing.T) {
	good, wide, buffered := Defaults(), Defaults(), Defaults()
	wide.Speeds, wide.Spread = lognormal, 10
	buffered.Speeds, buffered.FedBuff.Buffer = constant, 2
	goldentest.NoError(t, errors.Join(good.Check(), wide.Check(), buffered.Check()))
	for what, change := range map[string]func(*Config){
		`speeds: "fast"; use none`: func(c *Config) { c.Speeds = "fast" },
		`late: "wait"; use drop`:   func(c *Config) { c.Late = "wait" },
		`fedbuff.staleness: "old"`: func(c *Config) { c.FedBuff.Staleness = "old" },
		`fedbuff.weights: "all"`:   func(c *Config) { c.FedBuff.Weights = "all" },
		"deadline: -1":             func(c *Config) { c.Deadline = -1 },
		"bandwidth: NaN":           func(c *Config) { c.Bandwidth = math.NaN() },
		"step_seconds: 0":          func(c *Config) { c.Step = 0 },
		"step_seconds: 1e+300":     func(c *Config) { c.Step = 1e300 },
		"spread: 1; it must be below 1 with speeds: uniform":  func(c *Config) { c.Speeds, c.Spread = uniform, 1 },
		"spread: 400; it must be at most 10 with speeds: log": func(c *Config) { c.Speeds, c.Spread = lognormal, 400 },
		"file: it belongs to speeds: file":                    func(c *Config) { c.File = "speeds.csv" },
		"speeds: none simulates no time":                      func(c *Config) { c.Deadline = 3 },
		"FedBuff has no rounds that could end": func(c *Config) {
			c.Speeds, c.Deadline, c.FedBuff.Buffer = constant, 3, 2
		},
		"fedbuff.buffer: -2": func(c *Config) { c.FedBuff.Buffer = -2 },
	} {
		c := Defaults()
		change(&c)
		goldentest.WantError(t, c.Check(), what, "simulated_time.")
	}
}

// TestDamagedCheckpoint: a state is refused if it lacks uploads that it counts.
func TestDamagedCheckpoint(t *testing.T) {
	c := New(&addingClients{}, threeClients(FedBuff{Buffer: 1}), []int{0, 1, 2}, 3, func(int) int { return 1 })
	if _, err := c.Run(context.Background(), instruction(0, 0)); err != nil {
		t.Fatal(err)
	}
	saved, err := c.Save()
	goldentest.NoError(t, err)
	saved.Tensors = tensor.Map{}
	goldentest.WantError(t, c.Load(saved), "the checkpoint's simulated_time", "client 1 has no upload")
	saved.Texts[layer] = []byte("{")
	goldentest.WantError(t, c.Load(saved), "the checkpoint's simulated_time")
	goldentest.WantError(t, c.Load(message.Saved{}), "the checkpoint has no simulated_time", "other settings")
	if fmt.Sprint((*Plan)(nil)) != "" {
		t.Error("no plan has a text")
	}
}

// One client of three trains at a time: each idle one is drawn by the number of starts before it, also those that the
// server chose. A buffer larger than the federation is as full as it gets. Replies are in the order of clients, not in
// that of their arrivals, of which client 1's is the first.
func TestOneAtATime(t *testing.T) {
	p := threeClients(FedBuff{Buffer: 3, Staleness: constant, Weights: uniform})
	clients := &addingClients{}
	c := New(clients, p, []int{0, 1, 2}, 1, func(int) int { return 1 })
	o := instruction(0, 0)
	o.Clients = []int{1}
	replies, err := c.Run(t.Context(), o)
	if err != nil || len(replies) != 3 || replies[0].Client != 0 ||
		c.Report().Simulated.Seconds != 8 { // 1 + 2 + 5, one after the other
		t.Fatalf("%+v, %v", replies, err)
	}
	if s, err := c.Save(); err != nil || string(s.Texts[layer]) != `{"seconds":8,"starts":3}` {
		t.Errorf("%s, %v", s.Texts, err)
	}
	if c.Report().Simulated != nil {
		t.Error("a second report has time that no turn took")
	}
	many := New(clients, threeClients(FedBuff{Buffer: 4, Staleness: constant, Weights: uniform}), []int{0, 1, 2}, 3,
		func(int) int { return 1 })
	if replies, err := many.Run(t.Context(), instruction(0, 0)); err != nil || len(replies) != 3 ||
		many.Report().Simulated.Seconds != 5 {
		t.Errorf("%+v, %v", replies, err)
	}
	o = instruction(1, 0)
	o.Shared["ctx"] = tensor.New(2) // and uploads have one number
	_, err = many.Run(t.Context(), o)
	goldentest.WantError(t, err, "round 2, client 0: ")
	clients.silent = true
	_, err = many.Run(t.Context(), instruction(1, 0))
	goldentest.WantError(t, err, "round 2: client ", " did not answer")
}
