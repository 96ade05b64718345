package bench

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
)

// TestTogether measures steps of K clients in one run, K = 1, 2, 4 and 8, against bare products on the rows of one
// client, at ViT-B/16 size. BENCH_TOGETHER turns run in two parallel threads, and each turn runs every measurement
// once. The test prints medians per client step in wall-clock time and in processor time, which depends less on other
// programs, and the memory of the first run of each. Then it repeats this for first steps of K clients with equal
// prompts: one forward pass and K backward passes. BENCH_CLASSES=cifar10 skips the hundred classes.
func TestTogether(t *testing.T) {
	turns, err := strconv.Atoi(os.Getenv("BENCH_TOGETHER"))
	if err != nil {
		t.Skip("BENCH_TOGETHER is not a number of turns")
	}
	tower, err := randomTower("random", clip.TextB, clip.VisionArch{}, t.TempDir())
	goldentest.NoError(t, err)
	sizes := []int{1, 2, 4, 8}
	o := ort.Options{IntraThreads: 1, Prepack: true}
	for name, classes := range map[string][]string{"cifar10": clip.CIFAR10.Names(), "cifar100": clip.CIFAR100.Names()} {
		if wanted := os.Getenv("BENCH_CLASSES"); wanted != "" && wanted != name {
			continue
		}
		s, err := promptFL(tower, classes, o, nil)
		goldentest.NoError(t, err)
		bare, err := towerProducts(tower, s.rows, true, o)
		goldentest.NoError(t, err)
		runs := []func(context.Context) error{bare.run}
		first := client.NewWorker(s.experiment, client.Settings{Session: o})
		var made atomic.Int64
		for i, k := range append(sizes, sizes...) {
			var jobs []client.Job
			for id := range k {
				jobs = append(jobs, client.Job{Client: &spec.Client{ID: id, Backbone: tower, Train: s.client.Train},
					Instruction: s.order, State: client.Remembers(message.ClientState{})})
			}
			w := *s.worker
			if i >= len(sizes) {
				w = *first
			}
			w.Experiment.BatchClients = k
			runs = append(runs, func(ctx context.Context) error {
				order := s.order // with a prompt that no step has used yet
				order.Shared = order.Shared.Clone().Scale(1 + 1e-6*float64(made.Add(1)))
				now := slices.Clone(jobs)
				for i := range now {
					now[i].Instruction = order
				}
				_, _, err := w.Turns(ctx, now)
				return err
			})
		}
		for i, k := range slices.Concat([]int{0}, sizes, sizes) { // compiles
			before := resident()
			goldentest.NoError(t, runs[i](t.Context()))
			t.Logf("%s, K=%d: %d MB more are resident", name, k, (resident()-before)>>20)
		}
		clock, used := make([][2][]float64, len(runs)), make([][2][]float64, len(runs))
		failed := make(chan error, 2)
		for core := range 2 {
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				failed <- func() error {
					for turn := range turns {
						for n := range runs {
							i := (turn + n + core) % len(runs)
							began, begin := time.Now(), threadTime()
							if err := runs[i](t.Context()); err != nil {
								return err
							}
							clock[i][core] = append(clock[i][core], time.Since(began).Seconds())
							used[i][core] = append(used[i][core], threadTime()-begin)
						}
					}
					return nil
				}()
			}()
		}
		for range 2 {
			goldentest.NoError(t, <-failed)
		}
		median := func(v [2][]float64) float64 {
			all := slices.Sorted(slices.Values(slices.Concat(v[0], v[1])))
			return 1e3 * all[len(all)/2]
		}
		products := median(used[0]) / bare.flops * s.flops
		t.Logf("%s: products of one step %.1f ms of a processor", name, products)
		for i, k := range append(sizes, sizes...) {
			own, what := median(used[i+1])/float64(k), "other prompts"
			if i >= len(sizes) {
				what = "equal prompts"
			}
			t.Logf("K=%d, %s: %.1f ms by the clock, %.1f ms of a processor a client step, %.0f %% of its products", k,
				what, median(clock[i+1])/float64(k), own, 100*products/own)
		}
		goldentest.NoError(t, errors.Join(s.close(), first.Close()))
		goldentest.NoError(t, bare.close())
	}
}

// threadTime returns this thread's processor time so far, in seconds.
func threadTime() float64 {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	if syscall.Getrusage(thread, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
