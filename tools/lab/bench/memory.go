package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

// plainClasses returns the number of classes that one plain step can hold: as many as fit into four fifths of the free
// memory, and with Quick at most quickClasses.
func (o Options) plainClasses(a clip.TextArch, classes int) int {
	if free := procNumber("/proc/meminfo", "MemAvailable:"); o.Quick {
		classes = min(classes, quickClasses)
	} else if free > 0 {
		classes = min(classes, int(0.8*float64(free)/plainBytes(a)))
	}
	return max(1, classes)
}

// plainBytes estimates the memory of the plain form's gradient graph per class. Every layer keeps 28 rows of the width
// per position, and the weights of attention.
func plainBytes(a clip.TextArch) float64 {
	l := float64(a.Context)
	return 4 * float64(a.Layers) * (28*l*float64(a.Width) + 3*float64(a.Heads)*l*l)
}

// Memory returns the total and the free memory of the machine in bytes, or 0 on systems without these numbers.
func Memory() (total, free int64) {
	return procNumber("/proc/meminfo", "MemTotal:"), procNumber("/proc/meminfo", "MemAvailable:")
}

// resident returns the resident memory of this process in bytes, or 0 on systems without this number.
func resident() int64 { return procNumber("/proc/self/status", "VmRSS:") }

// held returns the resident memory between runs, without reusable buffers of earlier runs.
func held() (int64, error) {
	debug.FreeOSMemory()
	err := ort.TrimMemory()
	return resident(), err
}

// grown returns the increase of resident memory after a run, in bytes.
func grown(ctx context.Context, run func(context.Context) error) (int64, error) {
	before, err := held()
	if err != nil {
		return 0, err
	}
	err = run(ctx)
	return max(0, resident()-before), err
}

// resetPeak restarts the measurement of peakResident.
func resetPeak() { os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peakResident returns the largest resident memory of this process since resetPeak, in bytes, or 0 on systems without
// this number.
func peakResident() int64 { return procNumber("/proc/self/status", "VmHWM:") }

// shareOf returns the resident memory of some processes in bytes, in which a page that several processes share counts
// as a part for each (PSS); 0 on systems without this number.
func shareOf(pids ...int) (bytes int64) {
	for _, pid := range pids {
		bytes += procNumber(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
	}
	return bytes
}

// descendants returns a process and all that it or they started, on systems with /proc.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, _ := os.ReadFile(path)
		var child, parent int
		id, rest, _ := strings.Cut(string(raw), " (")
		_, rest, _ = strings.Cut(rest, ") ")
		fmt.Sscan(id, &child)
		fmt.Sscanf(rest, "%1s %d", new(string), &parent)
		children[parent] = append(children[parent], child)
	}

	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}

	return out
}

// watch measures every five seconds until largest is called, which returns the largest value.
func watch(measure func() int64) (largest func() int64) {
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		most, tick := int64(0), time.NewTicker(5*time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, measure())
			case <-stop:
				result <- max(most, measure())
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-result
	}
}

// procNumber reads a line "key number kB" of Linux's proc file system and returns bytes, or 0 without such a line.
func procNumber(path, key string) int64 {
	raw, _ := os.ReadFile(path)
	_, rest, _ := strings.Cut("\n"+string(raw), "\n"+key)
	kilobytes := int64(0)
	fmt.Sscan(rest, &kilobytes)
	return kilobytes << 10
}
