package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
)

// wideToy returns an experiment whose prompts have CLIP's size, 16 x 512, on a toy backbone that costs next to nothing.
func wideToy(t testing.TB, clients int) *spec.Experiment {
	t.Helper()
	m := buildMethod(t, "promptfl", nil, nil)
	b := &methodtest.Toy{ID: "wide", Width: 512, Dim: 512, Layers: 3}
	e := withMethod(m)
	e.Clients = nil
	rows := methodtest.Rows(1, 8, 512, len(e.Classes))
	for i := range clients {
		e.Clients = append(e.Clients, &spec.Client{ID: i, Backbone: b, Train: rows, Test: rows})
	}
	e.Training = spec.Training{Epochs: 1, Batch: 8, Optim: optim.Config{Name: "sgd", LR: 0.01, Momentum: 0.9}}
	e.Plan = spec.Plan{Rounds: 3, TestEvery: 3, Seed: 5}
	return e
}

// BenchmarkClients is what a client's turn costs beyond ONNX Runtime: one step, the upload, its state on disk, its
// share of the merge, and every third round its test.
//
//	go test -run xxx -bench Clients -benchtime 1x ./federation/engine
func BenchmarkClients(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint("of ", n), func(b *testing.B) {
			e := wideToy(b, n)
			for range b.N {
				began, inside := time.Now(), ort.NativeTime()
				mustRun(b, e, engine.Settings{Client: client.Settings{Session: ort.Options{IntraThreads: 1}},
					Dir: b.TempDir(), Workers: 1})
				own := time.Since(began) - (ort.NativeTime() - inside)
				b.ReportMetric(float64(own.Microseconds())/1000/float64(3*n), "own-ms/client")
			}
		})
	}
}

// TestMemoryIsFlat: with ten times the clients, the largest heap after a round grows only by the uploads of one round,
// 32 KB each, and by the server's bookkeeping for each client.
func TestMemoryIsFlat(t *testing.T) {
	peak := func(clients int) uint64 {
		e := wideToy(t, clients)
		var most uint64
		mustRun(t, e, engine.Settings{Client: client.Settings{Session: ort.Options{IntraThreads: 1}},
			Dir: t.TempDir(), Workers: 1,
			OnRound: func(record.Record) {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}})
		return most
	}
	few, many := peak(20), peak(200)
	if perClient := (float64(many) - float64(few)) / 180; perClient > 16<<10 { // a state alone is 32 KB
		t.Errorf("every client more takes %.0f bytes: %d with 20, %d with 200", perClient, few, many)
	}
}

// TestRoundDoesNotGrow: with a hundred times the clients, of which as many train, a round allocates 64 bytes for each
// further client, to draw the participants, and no more.
func TestRoundDoesNotGrow(t *testing.T) {
	const train = 5
	allocated := func(clients int) float64 {
		e := wideToy(t, clients)
		e.Plan.Participation = train / float64(clients)
		e.Plan.Rounds, e.Plan.TestEvery = 6, 100
		var after []uint64
		mustRun(t, e, engine.Settings{Client: client.Settings{Session: ort.Options{IntraThreads: 1}},
			Dir: t.TempDir(), Workers: 1,
			OnRound: func(record.Record) {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				after = append(after, m.TotalAlloc)
			}})
		return float64(after[4]-after[0]) / 4
	}
	few, many := allocated(50), allocated(5000)
	if perClient := (many - few) / 4950; perClient > 64 {
		t.Errorf("a round allocates %.0f bytes for each further client: %.0f with 50, %.0f with 5000", perClient, few,
			many)
	}
}
