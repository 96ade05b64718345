package listen

import (
	"syscall"
	"testing"

	"promptfed/runtime/goldentest"
)

// A run keeps 80 files for itself, and at most half of all; a limit above 2^20 is none. Another server has an eighth of
// the others, at most 40; without a limit 256.
func TestMostConnections(t *testing.T) {
	var old syscall.Rlimit
	goldentest.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	const high = 1 << 20
	for cur, want := range map[uint64][2]int{200: {120, 15}, 100: {50, 6}, 500: {420, 40}, high: {high - 80, 40},
		high + 1: {0, 256}} {
		limit := old
		if limit.Cur = cur; cur > limit.Max || syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
			continue // more than this system allows
		}
		if got := [2]int{mostConnections(), Beside()}; got != want {
			t.Errorf("%v connections of %d files, want %v", got, cur, want)
		}
	}
}
