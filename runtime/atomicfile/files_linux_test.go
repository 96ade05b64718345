package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/runtime/goldentest"
)

func TestReplacesNoPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	goldentest.NoError(t, syscall.Mkfifo(path, 0o600))
	goldentest.WantError(t, Write(path, text("x")), path, "no regular file")
}

// Write waits while too many files are open, in the time of a bubble. It gives up in the end, and succeeds once one of
// them is closed.
func TestWaitsForAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "late")
	var before syscall.Rlimit
	goldentest.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	goldentest.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: before.Max}))
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil || len(open) > 100 {
			t.Fatal(len(open), err)
		}
		open = append(open, f)
	}
	free := slices.Clone(open[:4]) // for the file, its folder, and the system's own needs
	open = open[4:]

	synctest.Test(t, func(t *testing.T) {
		const pause = 200 * time.Millisecond
		began := time.Now()
		if err := Write(path, text("early")); !errors.Is(err, syscall.EMFILE) || time.Since(began) < patience {
			t.Errorf("%v after %v", err, time.Since(began))
		}

		time.AfterFunc(pause, func() {
			for _, f := range free {
				f.Close()
			}
		})
		began = time.Now()
		if err := Write(path, text("late")); err != nil || time.Since(began) < pause {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
