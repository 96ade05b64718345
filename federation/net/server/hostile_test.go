package server_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// liar is a client that lies in its replies.
type liar struct {
	netclient.LocalExecutor
	lie func(o message.Instruction, r *message.Reply)
}

func (l liar) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	r, next, err := l.LocalExecutor.Execute(ctx, o, s)
	if err == nil {
		l.lie(o, &r)
	}
	return r, next, err
}

// spoil makes client 1 lie in its replies to one kind of instruction.
func (s *site) spoil(kind message.Kind, spoil func(r *message.Reply)) {
	s.lies(func(o message.Instruction, r *message.Reply) {
		if o.Kind == kind {
			spoil(r)
		}
	})
}

// lies makes client 1 a liar.
func (s *site) lies(lie func(o message.Instruction, r *message.Reply)) {
	s.part = func(client int, p netclient.LocalExecutor) netclient.Executor {
		if client == 1 {
			return liar{p, lie}
		}
		return p
	}
}

// withoutClient1 returns the shared parameters of a run in one process that loses the replies of client 1.
func withoutClient1(t testing.TB, e *spec.Experiment) string {
	t.Helper()
	r := enginetest.Run(t, e, engine.Settings{Wrap: methodtest.LoseReplies(func(_, client int) bool {
		return client == 1
	})})
	return nettest.BytesOf(t, r.Prompts.WithoutPrefix("shared"))
}

// shared returns the shared parameters of the server.
func (s *site) shared() string {
	s.t.Helper()
	m, _, err := safetensors.ReadFile(filepath.Join(s.dir, record.PromptsFile))
	if err != nil {
		s.t.Fatal(err)
	}
	return nettest.BytesOf(s.t, m.WithoutPrefix("shared"))
}

// Replies are refused and named if their tensors are not those that the method declares, or if their numbers are far
// beyond all others. Replies on which the method fails are left out. The others get the result of a run without them.
func TestHostileUploads(t *testing.T) {
	t.Parallel()
	scaffold, proto := nettest.Method("promptfl", []string{"scaffold"}, nil), nettest.Method("promptfl",
		[]string{"fedproto"}, nil)
	powder := nettest.Method("powder", nil, nil)
	ggtpc := nettest.Method("promptfl", []string{"ggtpc"}, map[string]any{"min_count": 1})
	lowRank := nettest.Method("promptfl", []string{"ggtpc"}, map[string]any{"stats": "lowrank"})
	put := func(name string, value float32) func(r *message.Reply) {
		return func(r *message.Reply) { r.Upload.Extra[name].Data[0] = value }
	}
	const ignored = `"an upload is ignored" round=1 client=1 reason=`
	for _, c := range []struct {
		say   string
		of    nettest.Stack
		kind  message.Kind
		spoil func(r *message.Reply)
	}{
		{"holds NaN", nettest.FedPHA, message.Train, func(r *message.Reply) {
			r.Upload.Shared["global"].Data[3] = float32(math.NaN())
		}},
		// 8 bytes, 3*6*4 of global, and its header of 69 bytes, padded to 72:
		// {"shared/global":{"dtype":"F32","shape":[3,6],"data_offsets":[0,72]}}
		{"at most 152 are accepted", nettest.FedPHA, message.Train, func(r *message.Reply) {
			r.Upload.Shared["more"] = r.Upload.Shared["global"]
		}},
		{"shared/global is missing", nettest.FedPHA, message.Train, func(r *message.Reply) {
			r.Upload.Shared = tensor.Map{"../../x": tensor.New(1)}
		}},
		{"it must count 1 or more", nettest.FedPHA, message.Train, func(r *message.Reply) { r.Upload.N = 0 }},
		{"the client joined with 5", nettest.FedPHA, message.Train, func(r *message.Reply) { r.Upload.N = 1000 }},
		{"extra/scaffold/dc/ctx is missing", scaffold, message.Train, func(r *message.Reply) { clear(r.Upload.Extra) }},
		{"extra/proto/mean is missing", proto, message.Train, func(r *message.Reply) { clear(r.Upload.Extra) }},
		{"extra/n is missing", ggtpc, message.Compute, func(r *message.Reply) { clear(r.Upload.Extra) }},
		{"a header of", proto, message.Train, func(r *message.Reply) {
			r.Upload.Extra["proto/mean"], r.Upload.Extra["proto/more"] = tensor.New(1), tensor.New(1)
		}},
		{"at most 72 are accepted", nettest.FedPHA, message.Train, func(r *message.Reply) {
			r.Upload.Shared, r.Upload.Extra["more"] = tensor.Map{"global": tensor.New(1)}, tensor.New(1)
		}},
		{"counts -1 examples", proto, message.Train, put("proto/n", -1)},
		{"counts 0.5 examples", proto, message.Train, put("proto/n", 0.5)},
		{"the client has 5", proto, message.Train, put("proto/n", 1e9)},
		{"the client has 5", ggtpc, message.Compute, put("n", 1e9)},
		{"proto/mean holds 1e+30", proto, message.Train, put("proto/mean", 1e30)},
		{"mean holds 1e+30", ggtpc, message.Compute, put("mean", 1e30)},
		{"a norm of scaffold/dc of 1000", scaffold, message.Train, put("scaffold/dc/ctx", 1000)},
		{"a norm of mean in the statistic ggtpc of 1e+04", ggtpc, message.Compute, put("mean", 1e4)},
		{"loss 1e+300 is invalid", nettest.FedPHA, message.Train, func(r *message.Reply) { r.Stats.Loss = 1e300 }},
		{`is not the loss term`, nettest.FedPHA, message.Train, func(r *message.Reply) {
			r.Stats.Terms = &message.LossTerms{Terms: []message.TermStats{{Name: "more"}}}
		}},
		{ignored, powder, message.Train, put("powder/use", -1)},
		{ignored, lowRank, message.Compute, func(r *message.Reply) {
			r.Upload.Extra["factors"] = tensor.New(7, 5)
		}},
	} {
		t.Run(c.say, func(t *testing.T) {
			t.Parallel()
			e := c.of.Experiment(t)
			e.Plan.Participation, e.Plan.Rounds = 1, 2
			s := newSite(t, e)
			s.set.Quorum = 0.7
			s.spoil(c.kind, c.spoil)
			s.run()
			if !strings.Contains(s.log.String(), c.say) {
				t.Errorf("nothing was logged of %q", c.say)
			}
			records, err := record.Records(s.dir)
			if err != nil || len(records) != 2 || len(records[0].Refused) != 1 || records[0].Refused[0].Client != 1 ||
				!strings.Contains(ignored+records[0].Refused[0].Reason, c.say) {
				t.Errorf("%v: the record has %+v", err, records)
			}
			// after a statistic its training counts
			if c.kind != message.Compute && s.shared() != withoutClient1(t, e) {
				t.Error("the others have another result")
			}
		})
	}
}

// Settings.Largest bounds uploads below what the method's may have: FedNova's have a number more than the instruction.
func TestLargestUpload(t *testing.T) {
	t.Parallel()
	e := nettest.Method("promptfl", []string{"fednova"}, nil).Experiment(t)
	e.Plan.Participation, e.Plan.Rounds = 1, 1
	s := newSite(t, e)
	sent := tensor.Map{}
	for _, p := range e.Method.Params(e.Task(e.Clients[0])) {
		sent["shared/"+p.Name] = tensor.New(p.Shape...)
	}
	s.set.Largest = message.EncodedSize(sent) // that of an instruction; an upload's header names another tensor
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	busytest.Until(t, "the server", func() bool { return len(served) > 0 || s.hub.Load() != nil })
	left := s.joinAll(ctx, cancel, len(e.Clients))
	want := fmt.Sprintf("at most %d are accepted", s.set.Largest)
	goldentest.WantError(t, <-served, want)
	cancel()
	left()
}

// misshapen are lies about the shapes of tensors: a number more, as from a backbone with another dimension, all numbers
// in a row, and whole numbers.
var misshapen = []func(x *tensor.Tensor) *tensor.Tensor{
	func(x *tensor.Tensor) *tensor.Tensor {
		return tensor.New(append(slices.Clone(x.Shape[:len(x.Shape)-1]), x.Shape[len(x.Shape)-1]+1)...)
	},
	func(x *tensor.Tensor) *tensor.Tensor { return tensor.New(1, x.Len()) },
	func(x *tensor.Tensor) *tensor.Tensor { return tensor.OfInts(make([]int64, x.Len()), x.Shape...) },
}

// impossible are lies about the results of a test: of its examples, or of a view.
var impossible = []func(r *message.Scores, statistics metrics.Statistics){
	func(r *message.Scores, statistics metrics.Statistics) {
		statistics["correct"][0] = float64(r.Examples) + 1
	},
	func(r *message.Scores, _ metrics.Statistics) { r.Examples = 1 << 40 },
	func(r *message.Scores, _ metrics.Statistics) { r.Examples = -1 },
	func(_ *message.Scores, statistics metrics.Statistics) { statistics["correct"][0] = -1 },
	func(_ *message.Scores, statistics metrics.Statistics) { statistics["correct"][0] = 1.5 },
	func(_ *message.Scores, statistics metrics.Statistics) { statistics["more"] = []float64{1} },
	func(_ *message.Scores, statistics metrics.Statistics) { statistics["correct"] = nil },
	func(r *message.Scores, _ metrics.Statistics) { r.Global, r.Personal = nil, nil },
}

// Over the wire, one of four clients lies: in each round in another direction, as far as the limits allow
// (methodtest.Lie), then in the shapes of its tensors, and in the results of each test. The run ends normally, every
// round counts the others, only the liar is refused, and what the server keeps is finite. Methods have statistics,
// extras, loss terms, state of server and clients, or backbones of several dimensions.
func TestLiesOverTheWire(t *testing.T) {
	t.Parallel()
	const rounds = 7 // the directions of methodtest
	for name, c := range map[string]struct {
		of    nettest.Stack
		mixed bool
	}{
		"scaffold": {nettest.Method("promptfl", []string{"scaffold"}, nil), false},
		"feddyn":   {nettest.Method("promptfl", []string{"feddyn"}, nil), false},
		"fedproto": {nettest.Method("promptfl", []string{"fedproto"}, nil), true},
		"ggtpc":    {nettest.Method("promptfl", []string{"ggtpc"}, map[string]any{"min_count": 1}), false},
		"fedappr":  {nettest.Method("fedappr", nil, map[string]any{"warmup": 0}), true},
		"powder":   {nettest.Method("powder", nil, nil), false},
		"fedpha":   {nettest.FedPHA, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := c.of.Experiment(t)
			e.Plan.Participation, e.Plan.Rounds = 1, rounds+len(misshapen)
			if c.mixed {
				e.Clients = methodtest.Clients(9, 5, 6, 3)
			}
			s := newSite(t, e)
			s.set.Quorum, s.set.KeepQuorum = 0.7, false
			task := e.Task(e.Clients[1])
			s.lies(func(o message.Instruction, r *message.Reply) {
				switch {
				case o.Kind.Tests():
					global := r.Scores.Global
					if global == nil {
						global = r.Scores.Personal
					}
					impossible[o.Round%len(impossible)](&r.Scores, global)
				case o.Round < rounds:
					methodtest.Lie(e.Method, task, o, r)
				default:
					for _, m := range []tensor.Map{r.Upload.Shared, r.Upload.Extra} {
						for name, x := range m {
							m[name] = misshapen[o.Round-rounds](x)
						}
					}
				}
			})
			s.run()
			records, err := record.Records(s.dir)
			if err != nil || len(records) != e.Plan.Rounds {
				t.Fatalf("%d rounds, %v", len(records), err)
			}
			for _, r := range records {
				others := slices.DeleteFunc(slices.Clone(r.Clients), func(k int) bool { return k == 1 })
				if !slices.Equal(others, []int{0, 2, 3}) {
					t.Errorf("round %d counts clients %v: %+v, %v", r.Round, r.Clients, r.Refused, r.Warnings)
				}
				var shaped, tested bool
				for _, x := range r.Refused {
					if x.Client != 1 {
						t.Errorf("round %d refuses client %d: %s", r.Round, x.Client, x.Reason)
					}
					shape := strings.Contains(x.Reason, "must be float32") ||
						strings.Contains(x.Reason, "of tensors; at most")
					shaped, tested = shaped || shape, tested || !shape
				}
				if (r.Round >= rounds) != shaped || !tested {
					t.Errorf("round %d names nobody for shapes or tests: %+v", r.Round, r.Refused)
				}
			}
			if err := message.CheckFinite("", s.tensors()); err != nil {
				t.Error(err)
			}
		})
	}
}
