package experiment

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// result returns all results of a run but its times: the bytes of its prompts, and its records.
func result(t *testing.T, r *engine.Result) (prompts, records string) {
	t.Helper()
	b, err := message.EncodeTensors(r.Prompts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Records {
		r.Records[i].Seconds, r.Records[i].Phases = 0, nil
	}
	text := goldentest.JSON(t, r.Records)
	return string(b), string(text)
}

// distance returns the largest difference of two sets of tensors, each over its largest magnitude or 1.
func distance(t *testing.T, a, b tensor.Map) (d float64) {
	t.Helper()
	if !slices.Equal(a.Names(), b.Names()) {
		t.Fatalf("%v and %v", a.Names(), b.Names())
	}
	for name, x := range a {
		for i, v := range x.Data {
			d = max(d, math.Abs(float64(v-b[name].Data[i]))/max(1, x.MaxAbs()))
		}
	}
	return d
}

// TestBatchClients: with the bundled towers, where prompts of several clients are rows of one product, prompts equal
// those of separate steps within 1e-6, with fewer and with more clients in a run than there are. Clients have different
// backbones and numbers of examples. Workers, a lost answer and an interruption with a resume change no byte.
func TestBatchClients(t *testing.T) {
	for _, names := range []string{"promptfl", "fedpha", "fedotp", "promptfl+ggtpc", "fedappr"} {
		t.Run(names, func(t *testing.T) {
			base, with, wrapped := strings.Cut(names, "+")
			c := smallConfig(base)
			if wrapped {
				c.With = []string{with}
			}
			c.Backbones = []string{"tiny-vit-b16", "tiny-vit-b16", "tiny-rn50"}
			c.Partition.Kind, c.Partition.Clients, c.Partition.Fill = "dirichlet", 7, true
			c.Data.Generator.Train, c.Train.Batch = 8, 4
			c.Runtime.Workers = 1
			lost := func(round, client int) bool { return round == 0 && client == 1 }
			finish := func(b *Federation) *engine.Result {
				set := b.Settings()
				set.Wrap = methodtest.LoseReplies(lost)
				return enginetest.Run(t, b.Experiment, set)
			}
			run := func(n int) *engine.Result {
				c.Runtime.BatchClients = n
				return finish(open(t, c))
			}
			want := run(1)
			for _, n := range []int{2, 3, 20} {
				got := run(n)
				if d := distance(t, got.Prompts, want.Prompts); !(d <= 1e-6) {
					t.Errorf("%d clients in a run: prompts differ by %g", n, d)
				}
				for i, r := range got.Records {
					if d := math.Abs(*r.Loss - *want.Records[i].Loss); !(d <= 1e-6*math.Abs(*r.Loss)) ||
						fmt.Sprint(r.Evaluation.PerClient) != fmt.Sprint(want.Records[i].Evaluation.PerClient) {
						t.Errorf("%d clients in a run, round %d: loss differs by %g, accuracies %v, want %v", n, i, d,
							r.Evaluation.PerClient, want.Records[i].Evaluation.PerClient)
					}
				}
			}
			c.Runtime.BatchClients = 3
			prompts, records := result(t, finish(open(t, c)))
			same := func(what string, r *engine.Result) {
				p, recs := result(t, r)
				if p != prompts || recs != records {
					t.Errorf("%s: other bytes", what)
				}
			}
			c.Runtime.Workers = 5
			same("5 workers", finish(open(t, c)))
			b := open(t, c)
			set := b.Settings()
			set.Dir, set.Wrap = t.TempDir(), methodtest.LoseReplies(lost)
			ctx, stop := context.WithCancel(context.Background())
			set.OnTurn = func(o message.Instruction, _ int) {
				if o.Round == 1 {
					stop()
				}
			}
			if _, err := engine.Run(ctx, b.Experiment, set); err == nil {
				t.Fatal("the run was not broken off")
			}
			set.OnTurn, set.Resume = nil, true
			r := enginetest.Run(t, b.Experiment, set)
			r.Prompts = orttest.Golden(t, filepath.Join(set.Dir, record.PromptsFile))
			same("resumed", r)
			b.Experiment.BatchClients = 2
			enginetest.Refused(t, b.Experiment, set, "another experiment")
		})
	}
}

// TestFirstStepInTwoGraphs: with the bundled towers, a first step whose forward pass is a graph of its own moves
// prompts like a step in one graph, within 1e-6 of the largest number, at a learning rate of 1.
func TestFirstStepInTwoGraphs(t *testing.T) {
	for _, name := range []string{"promptfl", "fedpha", "fedotp", "plot", "fedappr"} {
		c := smallConfig(name)
		c.Backbones = []string{"tiny-vit-b16", "tiny-vit-b16", "tiny-rn50"}
		c.Train.LR, c.Train.Rounds, c.Train.Batch = 1, 1, 64
		b := open(t, c)
		var run [2]*engine.Result
		for i := range run {
			set := b.Settings()
			set.Client.PrefixBytes = i - 1
			run[i] = enginetest.Run(t, b.Experiment, set)
		}
		d := distance(t, run[1].Prompts, run[0].Prompts)
		if t.Logf("%s: prompts differ by %g", name, d); !(d <= 1e-6) {
			t.Errorf("%s: prompts differ by %g", name, d)
		}
	}
}

// TestBatchClientsIsSaid: if clients are not batched although the key is set, a note says why, once for each backbone.
// If clients are processes of their own, the key is refused.
func TestBatchClientsIsSaid(t *testing.T) {
	for method, want := range map[string]string{"promptfl": "", "fedvpt": "the image tower runs in every step",
		"cocoop": "the text tower runs for each image", "fedclip": "no learned prompt goes through the text tower"} {
		c := smallConfig(method)
		c.Runtime.BatchClients, c.Train.Memory = 4, 1
		b := taskOf(t, c)
		said := 0
		for _, note := range b.Info.Notes {
			if strings.Contains(note, "runtime.batch_clients: 4 has no effect, "+want) {
				said++
			}
		}
		if wanted := min(1, len(want)); said != wanted {
			t.Errorf("%s: said %d times in %q, want %d", method, said, b.Info.Notes, wanted)
		}
	}
	c := smallConfig("promptfl")
	c.Runtime.BatchClients = 2
	_, err := OpenServer(c, false)
	goldentest.WantError(t, err, "runtime.batch_clients: 2", "alone", "set it to 1")
	_, err = OpenClient(context.Background(), c, ClientPlace{Of: 3}, nil)
	goldentest.WantError(t, err, "runtime.batch_clients: 2", "alone", "set it to 1")
	b := open(t, c)
	set := b.Settings()
	set.Executor = remoteOnly{}
	_, err = engine.Run(context.Background(), b.Experiment, set)
	goldentest.WantError(t, err, "runtime.batch_clients: 2", "alone", "set it to 1")
}

// remoteOnly is an executor that receives nothing.
type remoteOnly struct{ client.RemoteExecutor }

// Left to the program, the number of clients in a run is 1 on the CPU, for methods that train separately, and where
// each client trains in a program of its own. On a device, it depends on the memory of a step.
func TestChosenBatchClients(t *testing.T) {
	choose := func(method, provider string, gigabytes float64, set int) int {
		c := smallConfig(method)
		c.Train.Memory, c.Runtime.BatchClients = gigabytes, set
		task := taskOf(t, c)
		task.Protocol.Config.Runtime.BatchClients, task.Runtime.Provider = set, provider
		goldentest.NoError(t, task.chooseBatchClients())
		n := task.Experiment.BatchClients
		if n != task.Protocol.Config.Runtime.BatchClients || n != task.Protocol.Experiment.BatchClients {
			t.Errorf("%s: the configuration has another number than %d", method, n)
		}
		noted := slices.ContainsFunc(task.Info.Notes, func(s string) bool {
			return strings.Contains(s, fmt.Sprint("up to ", n, " clients"))
		})
		if noted != (n > 1 && set == 0) {
			t.Errorf("%s: %d clients, in a note: %v", method, n, noted)
		}
		return n
	}
	for _, c := range []struct {
		method, provider string
		gigabytes        float64
		set, want        int
	}{
		{"promptfl", ort.CPU, 4, 0, 1}, {"promptfl", ort.CUDA, 4, 0, 32}, {"promptfl", ort.CUDA, 4, 1, 1},
		{"promptfl", ort.CUDA, 4, 5, 5}, {"fedvpt", ort.CUDA, 4, 0, 1}, {"cocoop", ort.CUDA, 4, 0, 1},
	} {
		if got := choose(c.method, c.provider, c.gigabytes, c.set); got != c.want {
			t.Errorf("%+v: %d clients in a run", c, got)
		}
	}
	few, more := choose("promptfl", ort.CUDA, 0.004, 0), choose("promptfl", ort.CUDA, 0.008, 0)
	if few < 2 || more < 2*few || more > 2*few+1 {
		t.Errorf("%d clients in 4 MB, %d in 8", few, more)
	}
	for who, want := range map[role]int{wholeRun: 0, workerSide: 1, remoteSide: 1} { // 0 is left to the program
		p, err := newProtocol(smallConfig("promptfl"), members{role: who, clients: 4})
		goldentest.NoError(t, err)
		if n := p.Config.Runtime.BatchClients; n != want {
			t.Errorf("role %d: %d clients", who, n)
		}
	}
}
