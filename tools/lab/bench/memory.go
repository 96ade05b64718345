package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

// plainClasses is how many classes the plain step can take at a time: all, or as many as fit into four fifths of the
// free memory.
func (o Options) plainClasses(a clip.Text, classes int) int {
	n := o.PlainClasses
	if free := procNumber("/proc/meminfo", "MemAvailable:"); n == 0 && free > 0 {
		n = int(0.8 * float64(free) / plainBytes(a.TextArch))
	} else if n == 0 {
		n = classes
	}
	return max(1, min(n, classes))
}

// plainBytes is about what the gradient graph of the plain form keeps for each class: in every layer, for each
// position, some 28 rows of the width, and the weights of attention.
func plainBytes(a clip.TextArch) float64 {
	l := float64(a.Context)
	return 4 * float64(a.Layers) * (28*l*float64(a.Width) + 3*float64(a.Heads)*l*l)
}

// Memory is the memory of the machine and what of it is free, in bytes; 0 where the system does not tell.
func Memory() (total, free int64) {
	return procNumber("/proc/meminfo", "MemTotal:"), procNumber("/proc/meminfo", "MemAvailable:")
}

// resident is the memory of this process in bytes, 0 where the system does not tell.
func resident() int64 { return procNumber("/proc/self/status", "VmRSS:") }

// held is what stays resident between runs: without the buffers that earlier runs left to be used again.
func held() (int64, error) {
	debug.FreeOSMemory()
	err := ort.TrimMemory()
	return resident(), err
}

// grown is how many bytes more are resident after a run.
func grown(ctx context.Context, run func(context.Context) error) (int64, error) {
	before, err := held()
	if err != nil {
		return 0, err
	}
	err = run(ctx)
	return max(0, resident()-before), err
}

// backboneBytes is how many bytes more stay resident once a step of a tower was compiled and run: its weights as
// sessions share them.
func backboneBytes(ctx context.Context, o Options, t tower, classes []string) (bytes int64, err error) {
	before, err := held()
	if err != nil {
		return 0, err
	}
	s, err := promptFL(t, classes, o.Tokens, o.Session, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.run(ctx); err != nil {
		return 0, err
	}
	after, err := held()
	return max(0, after-before), err
}

// resetPeak lets peakResident begin anew.
func resetPeak() { os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peakResident is the most memory that this process had since resetPeak, in bytes; 0 where the system does not tell.
func peakResident() int64 { return procNumber("/proc/self/status", "VmHWM:") }

// procNumber reads a line "key number kB" of Linux's proc file system, in bytes; 0 where there is none.
func procNumber(path, key string) int64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == key {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return 0
}
