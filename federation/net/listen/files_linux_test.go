package listen

import (
	"syscall"
	"testing"
)

// A run keeps 80 files for itself, and at most half of all; a limit above 2^20 is none.
func TestMostConnections(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	for cur, want := range map[uint64]int{200: 120, 100: 50, 1 << 20: 1<<20 - 80, 1<<20 + 1: 0} {
		limit := old
		if limit.Cur = cur; cur > limit.Max || syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
			continue // more than this system allows
		}
		if got := mostConnections(); got != want {
			t.Errorf("%d connections of %d files, want %d", got, cur, want)
		}
	}
}
