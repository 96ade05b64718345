package engine_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	textprompts "promptfed/federation/methods/parts/prompts"
	"promptfed/federation/methods/text/averaged"
	"promptfed/federation/methodtest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

func features(c *spec.Client) *spec.Features { return c.Train.(*spec.Features) }

func TestRefusesBeforeRoundZero(t *testing.T) {
	none := &spec.Features{Views: []spec.RowReader{spec.InMemory{Tensor: tensor.New(0, 5)}}}
	for _, c := range []struct {
		name   string
		break_ func(e *spec.Experiment)
		words  []string
	}{
		{"no clients", func(e *spec.Experiment) { e.Clients = nil }, []string{"no clients"}},
		{"no classes", func(e *spec.Experiment) { e.Classes = nil }, []string{"no classes"}},
		{"empty client", func(e *spec.Experiment) { e.Clients[2].Train = none }, []string{"client 2",
			"no training data", "partition"}},
		{"no test data", func(e *spec.Experiment) { e.Clients[1].Test = none }, []string{"client 1", "no test data",
			"partition"}},
		{"widths", func(e *spec.Experiment) {
			e.Clients[3].Backbone = &methodtest.Toy{ID: "wide", Width: 8, Dim: 7}
		}, []string{"parameter global", "client 3", "wide", "[3 8]", "[3 6]", "the same text width"}},
		{"a parameter of some", func(e *spec.Experiment) { e.Method = ofWide{e.Method} }, []string{"parameter wide",
			"client 1", "absent on client 0"}},
		// In one process no other client's task is tried.
		{"start", func(e *spec.Experiment) { e.Method = fails{e.Method, "start"} }, []string{"backbone of client 0"}},
		{"same name", func(e *spec.Experiment) {
			e.Clients[3].Backbone = &methodtest.Toy{ID: "toy-b", Width: 6, Dim: 7}
		}, []string{"client 3", "toy-b", "rename one of them"}},
		{"numbering", func(e *spec.Experiment) { e.Clients[1].ID = 5 }, []string{"client 5", "position 1"}},
		{"label", func(e *spec.Experiment) { features(e.Clients[0]).Class[3] = 4 }, []string{"client 0", "label 4",
			"4 classes"}},
		{"images of the server", func(e *spec.Experiment) { e.Synthetic = &spec.Synthetic{Data: e.Clients[0].Train} },
			[]string{"synthetic.epochs: 0 must"}},
		{"participation", func(e *spec.Experiment) { e.Plan.Participation = 1.5 }, []string{"participation", "1.5"}},
		{"participation", func(e *spec.Experiment) { e.Plan.Participation = math.NaN() }, []string{"participation"}},
		{"trainer", func(e *spec.Experiment) { e.Plan.Trainers = []int{0, 4} }, []string{"client 4 does not exist"}},
		{"trainer", func(e *spec.Experiment) { e.Plan.Trainers = []int{-1} }, []string{"client -1", "are 4 clients"}},
		{"rounds", func(e *spec.Experiment) { e.Plan.Rounds = 0 }, []string{"train.rounds", "1 or more"}},
		{"batch", func(e *spec.Experiment) { e.Training.Batch = 0 }, []string{"train.batch", "1 or more"}},
		{"optimizer", func(e *spec.Experiment) { e.Training.Optim.Name = "sdg" }, []string{"sdg", "sgd"}},
		{"schedule", func(e *spec.Experiment) { e.Training.Schedule.Kind = "zigzag" }, []string{"zigzag", "cosine"}},
		{"rate", func(e *spec.Experiment) { e.Training.Optim.LR = math.Inf(1) }, []string{"lr"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, turns := toy(t), 0
			c.break_(e)
			refused(t, e, engine.Settings{OnTurn: func(message.Instruction, int) { turns++ }}, c.words...)
			if turns > 0 {
				t.Error("clients had begun")
			}
		})
	}
}

// ofWide is a method with a shared parameter on the backbone toy-b alone.
type ofWide struct{ method.Method }

func (m ofWide) Params(c method.ClientSpec) []method.Param {
	if c.Dim < 7 {
		return m.Method.Params(c)
	}
	return append(m.Method.Params(c), method.Param{Name: "wide", Shape: []int{c.Dim}})
}

// Rounds without any answer change nothing.
func TestRoundsWithoutAnswers(t *testing.T) {
	e := toy(t)
	r := mustRun(t, e, engine.Settings{Wrap: methodtest.LoseReplies(func(int, int) bool { return true })})
	start, err := engine.InitialParams(e, e.Clients[0])
	goldentest.NoError(t, err)
	for name, was := range start.WithoutPrefix("shared") {
		if d := cmp.Diff(was, r.Prompts["shared/"+name]); d != "" {
			t.Errorf("%s changed:\n%s", name, d)
		}
	}
	if len(r.Records) != e.Plan.Rounds || len(r.Records[0].Clients) > 0 {
		t.Errorf("%d rounds, %+v", len(r.Records), r.Records[0])
	}
}

// defective is a method with one defect.
type defective struct {
	averaged.PromptFL
	params func([]method.Param) []method.Param
	loss   func(*method.Scope, graph.Node) graph.Node
}

func (b defective) Params(t method.ClientSpec) []method.Param {
	p := b.PromptFL.Params(t)
	if b.params != nil {
		p = b.params(p)
	}
	return p
}

func (b defective) Loss(s *method.Scope, logits graph.Node) graph.Node {
	if b.loss != nil {
		return b.loss(s, logits)
	}
	return b.PromptFL.Loss(s, logits)
}

func TestRefusesMethodsThatAreWrong(t *testing.T) {
	base := averaged.PromptFL{ClassContext: textprompts.ClassContext{Context: textprompts.Context{Tokens: 2,
		Position: "end",
		Std:      .1}}}
	for name, c := range map[string]struct {
		m     defective
		words []string
	}{
		"unused": {defective{params: func(p []method.Param) []method.Param {
			return append(p, method.Param{Name: "spare", Shape: []int{2}})
		}}, []string{`"spare"`, "declared by Params", "not used by the loss"}},
		"unknown": {defective{loss: func(s *method.Scope, l graph.Node) graph.Node {
			return graph.CrossEntropy(l, s.Label()).Add(s.Param("ghost").Sum())
		}}, []string{`"ghost"`, "not declared by Params"}},
		"not a number": {defective{loss: func(s *method.Scope, l graph.Node) graph.Node { return l }},
			[]string{"the loss has shape"}},
		"shapes": {defective{loss: func(s *method.Scope,
			l graph.Node) graph.Node {
			return l.MatMul(s.Param("ctx")).Sum()
		}}, []string{"MatMul"}},
		"no such extra": {defective{loss: func(s *method.Scope, l graph.Node) graph.Node {
			return graph.CrossEntropy(l, s.Label()).Add(s.Broadcast("gift", 1).Sum())
		}}, []string{"client", "down/gift", "is not available here"}},
		"not set": {defective{loss: func(s *method.Scope, l graph.Node) graph.Node {
			return graph.CrossEntropy(l, s.Label()).Mul(s.Scalar("tau"))
		}}, []string{"scalar/tau", "is not available here"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.m.PromptFL = base
			refused(t, withMethod(c.m), engine.Settings{}, c.words...)
		})
	}
}

func TestRefusesWhatIsNoNumber(t *testing.T) {
	nan := float32(math.NaN())
	t.Run("features", func(t *testing.T) {
		e := toy(t)
		features(e.Clients[2]).Views[0].(spec.InMemory).Row(4).Data[1] = nan
		refused(t, e, engine.Settings{}, "round 1", "client 2", "step ", "image of example 4", "NaN",
			"remove that example")
	})
	t.Run("test features", func(t *testing.T) {
		e := toy(t)
		e.Clients[1].Test.Views[0].(spec.InMemory).Row(6).Data[0] = nan
		refused(t, e, engine.Settings{}, "round 1", "client 1", "test", "image of example 6")
	})
	// The toy's logits saturate: only a penalty on the distance, after a first step, overflows.
	prox := buildMethod(t, "promptfl", []string{"fedprox"}, map[string]any{"tokens": 2, "mu": 1.0})
	for lr, word := range map[float64]string{1e30: "the loss", 1e38: "the loss", 1e45: "parameter ctx"} {
		e := withMethod(prox)
		e.Training.Optim.LR = lr
		refused(t, e, engine.Settings{}, "round 1", "client ", "step ", word, "Inf", "train.lr")
	}
	t.Run("later", func(t *testing.T) {
		e, dir := toy(t), t.TempDir()
		bad := &nanRows{Features: features(e.Clients[0])}
		e.Clients[0].Train = bad
		// The third pass over the data is that of round 2.
		bad.from = 2
		refused(t, e, engine.Settings{Dir: dir}, "round 3", "client 0", "step 0", "image", "NaN")
		bad.from = 100
		mustRun(t, e, engine.Settings{Dir: dir, Resume: true})
		whole := t.TempDir()
		mustRun(t, toy(t), engine.Settings{Dir: whole})
		if prompts(t, dir) != prompts(t, whole) {
			t.Error("the repaired run ends elsewhere")
		}
	})
}

// nanRows is data whose features are NaN from some pass on.
type nanRows struct {
	*spec.Features
	from, passes int
}

func (s *nanRows) Order(r *rand.Rand) []int {
	s.passes++
	return s.Features.Order(r)
}

func (s *nanRows) Batch(rows []int, r *rand.Rand, also ...string) (tensor.Map, error) {
	m, err := s.Features.Batch(rows, r)
	if s.passes > s.from {
		m["image"].Data[0] = float32(math.NaN())
	}
	return m, err
}

func TestRefusesDamagedRunFolders(t *testing.T) {
	whole := t.TempDir()
	mustRun(t, toy(t), engine.Settings{Dir: whole})
	server := filepath.Join(record.CheckFolder, "server.safetensors")
	clients := filepath.Join(record.CheckFolder, "clients-000002.states")
	half := func(b []byte) []byte { return b[:len(b)/2] }
	for _, c := range []struct {
		name, file string
		damage     func([]byte) []byte
		words      []string
	}{
		{"truncated server", server, half, []string{"cannot resume", server}},
		{"empty server", server, func([]byte) []byte { return nil }, []string{"cannot resume", server}},
		{"flipped server", server, func(b []byte) []byte { b[len(b)-3] ^= 1; return b }, []string{"cannot resume",
			server, "damaged"}},
		{"truncated clients", clients, half, []string{"cannot resume", clients}},
		{"flipped clients", clients, func(b []byte) []byte { b[len(b)-3] ^= 64; return b }, []string{"cannot resume",
			clients, "damaged"}},
		{"garbage rounds", record.RoundsFile, func([]byte) []byte { return []byte("garbage\n") },
			[]string{"cannot resume", record.RoundsFile, "0 readable rounds", "3"}},
		{"half of the rounds", record.RoundsFile, half, []string{"cannot resume", record.RoundsFile,
			"readable rounds"}},
		{"an impossible accuracy", record.RoundsFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"worst":0.`), []byte(`"worst":1.`), 1)
		}, []string{"cannot resume", record.RoundsFile, "0 readable rounds", "3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filetest.Copy(t, t.TempDir(), whole)
			path := filepath.Join(dir, c.file)
			filetest.Write(t, path, c.damage(filetest.Read(t, path)))
			refused(t, toy(t), engine.Settings{Dir: dir, Resume: true}, c.words...)
		})
	}
	for _, file := range []string{clients, server} {
		t.Run("missing "+file, func(t *testing.T) {
			dir := filetest.Copy(t, t.TempDir(), whole)
			os.Remove(filepath.Join(dir, file))
			refused(t, toy(t), engine.Settings{Dir: dir, Resume: true}, "cannot resume", file)
		})
	}
	t.Run("a torn last line", func(t *testing.T) {
		dir := filetest.Copy(t, t.TempDir(), whole)
		path := filepath.Join(dir, record.RoundsFile)
		b, _ := os.ReadFile(path)
		os.WriteFile(path, b[:len(b)-9], 0o644)
		for _, name := range []string{".rounds.jsonl.1.tmp", ".prompts.safetensors.1.tmp", ".tables.tex.1.tmp"} {
			filetest.Write(t, filepath.Join(dir, name), "")
		}
		mustRun(t, toy(t), engine.Settings{Dir: dir, Resume: true})
		left, _ := filepath.Glob(filepath.Join(dir, ".*"))
		if len(left) != 1 || filepath.Base(left[0]) != ".tables.tex.1.tmp" {
			t.Errorf("%v is left, want the file of a report in progress", left)
		}
		if again, _ := os.ReadFile(path); string(again) != string(b) {
			t.Errorf("the line was not restored:\n%s%s", b, again)
		}
	})
	t.Run("not asked to resume", func(t *testing.T) {
		refused(t, toy(t), engine.Settings{Dir: whole}, whole, "--resume", "--out")
	})
	t.Run("another experiment", func(t *testing.T) {
		e := toy(t)
		e.Training.Optim.LR = 0.2
		refused(t, e, engine.Settings{Dir: whole, Resume: true}, "cannot resume", "another experiment")
	})
	t.Run("no folder", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		os.WriteFile(file, nil, 0o644)
		refused(t, toy(t), engine.Settings{Dir: filepath.Join(file, "run")}, "run folder", "--out")
	})
}

// No computation of a run changes its inputs.
func TestChangesNothingItWasGiven(t *testing.T) {
	e := toy(t)
	before := features(e.Clients[0]).Views[0].(spec.InMemory).Clone()
	first := mustRun(t, e, engine.Settings{Workers: 4})
	again := mustRun(t, e, engine.Settings{Workers: 4})
	for name, v := range first.Prompts {
		if w := again.Prompts[name]; w == nil || tensor.Map(map[string]*tensor.Tensor{"d": v.Clone()}).Axpy(-1,
			tensor.Map{"d": w})["d"].MaxAbs() != 0 {
			t.Errorf("a second run of one experiment gives another %s", name)
		}
	}
	before.Axpy(-1, features(e.Clients[0]).Views[0].(spec.InMemory).Tensor)
	if before.MaxAbs() != 0 || len(e.Plan.Infos) != 0 {
		t.Error("the experiment was changed")
	}
}

// A client's turn changes neither its instruction nor its state.
func TestTurnsLeaveOrdersAndStatesAlone(t *testing.T) {
	e := toy(t)
	w := client.NewWorker(e, client.Settings{})
	defer w.Close()
	shared := tensor.Map{"global": methodtest.Values(1, .5, 3, 6)}
	state := message.ClientState{Private: tensor.Map{"local": methodtest.Values(2, .5, 2, 6)},
		Own: tensor.Map{"global": methodtest.Values(3, .5, 3, 6)}}
	was := []tensor.Map{shared.Clone(), state.Private.Clone(), state.Own.Clone()}
	o := message.Instruction{Kind: message.Train, Clients: []int{0}, Total: 4, Shared: shared}
	reply, next, err := w.Train(context.Background(), e.Clients[0], o, state)
	goldentest.NoError(t, err)
	for _, m := range []tensor.Map{reply.Upload.Shared, next.Private, next.Own} {
		m.Scale(0)
	}
	if _, err := w.Test(context.Background(), e.Clients[0], o, state); err != nil {
		t.Fatal(err)
	}
	for i, m := range []tensor.Map{shared, state.Private, state.Own} {
		for name := range was[i] {
			was[i][name].Axpy(-1, m[name])
			if was[i][name].MaxAbs() != 0 {
				t.Errorf("%s was changed", name)
			}
		}
	}
}
