package experiment

import (
	"sync/atomic"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/record"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
)

// A run's memory on a device does not grow with its steps: between the first and the last 100 of 1,000 steps of four
// clients side by side, it grows at most three times, once for each further thread that runs a session, by at most 100
// MB (docs/performance.md: 65 to 95). A leak would grow in each of the nine intervals. No other program may use the
// device. ONNX Runtime's issue 29351 is of a session that grows by gigabytes if its runs come from several threads. On
// the CPU the memory is unknown, and a few steps check that such a run takes graphs of fixed sizes.
func TestDeviceMemoryStaysFlat(t *testing.T) {
	const clients, most = 4, 100e6
	rounds := 10
	if orttest.OnCPU() {
		rounds = 2
	}
	var graphs atomic.Int64
	ort.OnFixed = func(*onnx.ModelProto) { graphs.Add(1) }
	t.Cleanup(func() { ort.OnFixed = nil })
	g := graph.New()
	m, err := graph.Model(graph.Output{Name: "y", Node: g.Input("x", graph.Float, graph.Static(1)).AddScalar(1)})
	if err != nil {
		t.Fatal(err)
	}
	device, err := ort.NewSession(m, ort.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for _, method := range []string{"maple", "cocoop", "fedvpt"} {
		t.Run(method, func(t *testing.T) {
			c := smallConfig(method)
			c.Runtime.Provider = device.Provider()
			c.Data.Generator.Train = 4 // 32 images, a batch for each client
			c.Partition.Clients, c.Train.Rounds, c.Train.Epochs = clients, rounds, 1000/clients/rounds
			if orttest.OnCPU() {
				c.Train.Epochs = 3 // the second step of a size gets its own graph
			}
			b := open(t, c)
			defer b.Close()
			set := b.Settings()
			set.Workers, set.Client.Session.Bind, set.Client.DeviceGraphs = clients, orttest.OnCPU(), true
			graphs.Store(0)
			var free []int64
			set.OnRound = func(record.Record) { free = append(free, device.FreeMemory()) }
			enginetest.Run(t, b.Experiment, set)
			if len(free) != rounds || graphs.Load() == 0 {
				t.Fatalf("%d rounds with %d graphs of fixed sizes, want %d rounds", len(free), graphs.Load(), rounds)
			}
			if orttest.OnCPU() {
				t.Logf("provider %s does not tell its memory", device.Provider())
				return
			}
			grown := 0
			for i := range rounds - 1 {
				if free[i+1] < free[i] {
					grown++
				}
				if free[i]-free[i+1] > most {
					grown += rounds
				}
			}
			if grown > 3 {
				t.Errorf("free bytes after each %d steps: %d", clients*c.Train.Epochs, free)
			}
		})
	}
}
