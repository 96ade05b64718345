package bench

import (
	"context"
	"flag"
	"fmt"
	"syscall"
	"testing"
	"time"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

var fileSteps = flag.Int("filesteps", 0, "measure so many steps of methods from files beside their twins in Go")

// processorTime is what this process has taken so far: other programs on the machine do not count.
func processorTime(t *testing.T) time.Duration {
	var use syscall.Rusage
	goldentest.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// TestMethodFileSteps measures processor time of steps of methods from files and of their twins in Go, in turn in one
// process, on the text tower of ViT-B/16 with random weights, 10 classes and 16 tokens:
// go test ./tools/lab/bench -run MethodFileSteps -v -filesteps 20
func TestMethodFileSteps(t *testing.T) {
	if *fileSteps == 0 {
		t.Skip("-filesteps is 0")
	}
	text, vision := clip.TextB, fullBackbones["vit-b16"]
	text.EmbedDim = vision.EmbedDim
	tower, err := randomTower("random", text, vision, t.TempDir())
	goldentest.NoError(t, err)
	for file, twin := range map[string]protocol{
		"promptfl":    {method: "promptfl", options: map[string]any{"tokens": 16}},
		"promptfl-l2": {method: "promptfl", options: map[string]any{"tokens": 16}},
		"fedotp":      {method: "fedotp", options: map[string]any{"tokens": 16}},
		"fedpha":      {method: "fedpha", options: map[string]any{"ratio": 0.5}},
	} {
		ours := protocol{method: "onnx", options: map[string]any{"file": methodtest.ONNXOption(file), "tokens": 16,
			"private_tokens": []int{16}}}
		var step [2]func() time.Duration
		for i, p := range []protocol{twin, ours} {
			p.classes, p.batch, p.rounds = clip.CIFAR10.Names(), batch, 1
			e, err := p.describe()
			goldentest.NoError(t, err)
			rows := examples{}.of(tower.Task(), 0, "train", inTurn(len(p.classes)), e.Reads(tower))
			e.Clients = []*spec.Client{{ID: 0, Backbone: tower, Train: rows, Test: rows}}
			w := client.NewWorker(e, client.Settings{Session: ort.Options{IntraThreads: 1}, PrefixBytes: -1})
			t.Cleanup(func() { w.Close() })
			shared := tensor.Map{}
			for _, q := range e.Method.Params(e.Task(e.Clients[0])) {
				if q.Owner == method.Shared {
					shared[q.Name] = q.Initial(1, -1)
				}
			}
			step[i] = func() time.Duration {
				start := processorTime(t)
				if _, _, err := w.Train(context.Background(), e.Clients[0], message.Instruction{Kind: message.Train,
					Clients: []int{0}, Total: 1, Shared: shared}, message.ClientState{}); err != nil {
					t.Fatal(err)
				}
				return processorTime(t) - start
			}
			step[i]()
		}
		var ms [2][]float64
		for k := range *fileSteps {
			for i := range 2 {
				ms[(i+k)%2] = append(ms[(i+k)%2], 1e3*step[(i+k)%2]().Seconds())
			}
		}
		goes, files := median(ms[0]), median(ms[1])
		fmt.Printf("%s: %.2f ms from a file, %.2f ms in Go, %+.1f %%\n", file, files, goes, 100*(files/goes-1))
	}
}
