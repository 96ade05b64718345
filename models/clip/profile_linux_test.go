package clip_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"promptfed/models/clip"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// TestProfile compares the text tower's step at ViT-B/16 size, with one prompt of 16 tokens, with its own matrix
// products: CLIP_PROFILE turns of a step with kernels, one without, one that spins, and the bare products. It prints
// medians over turns of the time relative to the first step, by the clock and in processor time, which depends less on
// other programs. For other runs, it prints the time of each kind of operator in ONNX Runtime's profile: the sum of the
// lower quintiles over runs, since other programs can only make a run longer.
func TestProfile(t *testing.T) {
	turns, err := strconv.Atoi(os.Getenv("CLIP_PROFILE"))
	if err != nil {
		t.Skip("CLIP_PROFILE is not a number of turns")
	}
	w := writeFormula(t, t.TempDir(), clip.TextB.Shapes())
	for name, list := range map[string]clip.NamedClasses{"cifar10": clip.CIFAR10, "cifar100": clip.CIFAR100} {
		s, err := clip.NewSuffixes(list.Names(), list.Suffixes(), clip.SpecialTokens{SOS: clip.StartID},
			clip.TextB.Width, embedding(clip.TextB.Width))
		goldentest.NoError(t, err)
		rows := 17
		for _, ids := range s.IDs {
			rows += len(ids)
		}
		for _, threads := range []int{1, 2} {
			o := ort.Options{IntraThreads: threads, Prepack: true}
			spin, profiled := o, o
			spin.Spinning, profiled.Profile = true, filepath.Join(t.TempDir(), "step")
			bare, flops := gemm(t, w, "", clip.TextB.Width, clip.TextB.Layers, rows, o)
			all := []step{textStep(t, w, s, 1, false, true, o), textStep(t, w, s, 1, false, false, o), bare,
				textStep(t, w, s, 1, false, true, spin)}
			text := clip.Text{TextArch: clip.TextB}
			own := text.StepFLOPs(s, prompted(graph.New(), 1, text.Width, tensor.Map{}))
			compared(t, fmt.Sprintf("%s, threads %d", name, threads), turns, all, own/flops)
			p := textStep(t, w, s, 1, false, true, profiled)
			for range turns {
				p.run(t)
			}
			p.s.Close()
			logProfile(t, profiled.Profile)
		}
	}
}

// TestVisionProfile is TestProfile for a step of the image tower of ViT-B/32 on 8 images with 16 prompt tokens.
func TestVisionProfile(t *testing.T) {
	turns, err := strconv.Atoi(os.Getenv("CLIP_PROFILE"))
	if err != nil {
		t.Skip("CLIP_PROFILE is not a number of turns")
	}
	const images, tokens = 8, 16
	v := clip.Vision{VisionArch: clip.VisionB32}
	w := writeFormula(t, t.TempDir(), v.Shapes())
	o := ort.Options{IntraThreads: 1, Prepack: true}
	profiled := o
	profiled.Profile = filepath.Join(t.TempDir(), "step")
	bare, flops := gemm(t, w, "visual.", v.Width, v.Layers, images*(1+v.Patches()+tokens), o)
	begin, clock := processorTime(t), time.Now()
	first := visionStep(t, w, v, images, true, o)
	built, after := processorTime(t)-begin, time.Since(clock)
	first.run(t)
	t.Logf("compiled in %.1f s, %.1f of processors; the first run %.1f s, %.1f", after.Seconds(), built,
		(time.Since(clock) - after).Seconds(), processorTime(t)-begin-built)
	all := []step{first, visionStep(t, w, v, images, false, o), bare}
	compared(t, "image tower", turns, all, images*v.FLOPs(tokens, true)/flops)
	p := visionStep(t, w, v, images, true, profiled)
	for range turns {
		p.run(t)
	}
	p.s.Close()
	logProfile(t, profiled.Profile)
}

// A step of the image tower keeps about as much memory as BlocksStepBytes computes: the growth of the process after a
// run on 20 more images.
func TestVisionStepBytes(t *testing.T) {
	if os.Getenv("CLIP_PROFILE") == "" {
		t.Skip("CLIP_PROFILE is not set; it takes gigabytes")
	}
	v := clip.Vision{VisionArch: clip.VisionB32}
	w := writeFormula(t, t.TempDir(), v.Shapes())
	p := visionStep(t, w, v, 24, true, ort.Options{IntraThreads: 1, Prepack: true})
	few := step{p.s, maps.Clone(p.in)}
	few.in["pixels"] = formula("pixels", []int{4, 3, v.Image, v.Image})
	var held [2]float64
	for i, s := range []step{few, p} {
		s.run(t)
		held[i] = resident(t)
	}
	told := float64(clip.BlocksStepBytes(1+v.Patches()+16, v.Width, v.Units(), v.Layers, false))
	each := (held[1] - held[0]) / 20
	t.Logf("an image takes %.1f MB, told %.1f", each/1e6, told/1e6)
	if each < 0.7*told || each > 1.3*told {
		t.Errorf("what is told is off by a factor of %.2f", each/told)
	}
}

// resident returns the resident memory of this process, in bytes.
func resident(t *testing.T) float64 {
	t.Helper()
	raw := filetest.Read(t, "/proc/self/statm")
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	goldentest.NoError(t, err)
	return float64(pages * os.Getpagesize())
}

// compared runs steps in turns and prints the time of each relative to the first, as the median over turns: one with
// kernels, one without, the bare products with their share of the first, and one that spins, if it exists.
func compared(t *testing.T, name string, turns int, all []step, needs float64) {
	t.Helper()
	clock, processor := make([][]float64, len(all)), make([][]float64, len(all))
	took, used := make([][]float64, len(all)), make([][]float64, len(all))
	for turn := range turns + 1 {
		for k := range all {
			i := (turn + k) % len(all) // each follows each other one
			begin := processorTime(t)
			took[i] = append(took[i], all[i].run(t).Seconds())
			used[i] = append(used[i], processorTime(t)-begin)
			busytest.Delay(20 * time.Millisecond) // threads that spin continue for a while
		}
	}
	for i := range all {
		for turn := 1; turn <= turns; turn++ { // the first turn is a warm-up
			clock[i] = append(clock[i], took[i][turn]/took[0][turn])
			processor[i] = append(processor[i], used[i][turn]/used[0][turn])
		}
	}
	t.Logf("%s: %.1f ms, %.1f of processors; %.0f %% of its products by the clock, %.0f %% in processor time; without "+
		"kernels %.2f times as long, %.2f", name, 1e3*median(took[0][1:]), 1e3*median(used[0][1:]),
		100*median(clock[2])*needs, 100*median(processor[2])*needs, median(clock[1]), median(processor[1]))
	if len(all) > 3 {
		t.Logf("spinning %.2f times as long, %.2f in processor time", median(clock[3]), median(processor[3]))
	}
}

// processorTime returns the processor time of this process, in seconds.
func processorTime(t *testing.T) float64 {
	t.Helper()
	var u syscall.Rusage
	goldentest.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

func logProfile(t *testing.T, prefix string) {
	t.Helper()
	files, err := filepath.Glob(prefix + "*")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	var events []struct {
		Cat, Name string
		Dur       float64 // µs
		Args      struct {
			Op string `json:"op_name"`
		}
	}
	goldentest.ReadJSON(t, files[0], &events)
	nodes, kind := map[string][]float64{}, map[string]string{}
	for _, e := range events {
		if name, ok := strings.CutSuffix(e.Name, "_kernel_time"); ok && e.Cat == "Node" {
			nodes[name], kind[name] = append(nodes[name], e.Dur), e.Args.Op
		}
	}
	spent, count, total := map[string]float64{}, map[string]int{}, 0.0
	for name, d := range nodes {
		low := slices.Sorted(slices.Values(d))[len(d)/5] / 1e3
		spent[kind[name]] += low
		count[kind[name]]++
		total += low
	}
	longest := func(a, b string) int { return cmp.Compare(spent[b], spent[a]) }
	for _, k := range slices.SortedFunc(maps.Keys(spent), longest) {
		t.Logf("  %-20s %4d %8.2f ms %5.1f %%", k, count[k], spent[k], 100*spent[k]/total)
	}
	t.Logf("  %-20s %4d %8.2f ms", "all", len(nodes), total)
}
