package runfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/time/rate"
)

// lock locks a folder for this process.
func lock(dir string) (release func(), err error) {
	return lockFor(dir, LockFile, (*flock.Flock).TryLock, "another promptfed works in "+dir, "--out")
}

// LockClient locks the folder of a client on its own machine for this process until release is called.
func LockClient(dir string) (release func(), err error) {
	return lockFor(dir, LockFile+"-client", (*flock.Flock).TryLock, "another promptfed join works in "+dir, "--state")
}

// share locks a folder for processes that run different parts of the same sweep, and one part for this process.
func share(dir, part string) (release func(), err error) {
	all, err := lockFor(dir, LockFile, (*flock.Flock).TryRLock, "a promptfed without --array works in "+dir, "--out")
	if err != nil {
		return nil, err
	}

	own, err := lockFor(dir, LockFile+"-"+part, (*flock.Flock).TryLock, "another promptfed does this part of "+dir,
		"--out")
	if err != nil {
		all()
		return nil, err
	}

	return func() { own(); all() }, nil
}

// SignsOfLife returns a function that notes a sign of life of the process that works in a folder, at most once in
// signPause.
func SignsOfLife(dir string) func() {
	often := rate.Sometimes{Interval: signPause}
	return func() { often.Do(func() { Touch(dir) }) }
}

const signPause = 10 * time.Second

// Touch notes a sign of life of the process that works in a folder.
func Touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, LockFile), now, now) // a folder without it has no signs
}

// Held reports whether a process works in a folder, if that is known.
func Held(dir string) (held, known bool) {
	path := filepath.Join(dir, LockFile)
	if _, err := os.Stat(path); err != nil {
		return false, false
	}

	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	defer l.Close()
	free, err := l.TryRLock()
	return err == nil && !free, err == nil
}

// A process tries a lock several times, with a pause after each, because Held holds it for a moment.
const (
	tries = 5
	pause = 10 * time.Millisecond
)

// lockFor locks a file of a folder, which flag names.
func lockFor(dir, name string, try func(*flock.Flock) (bool, error), held, flag string) (release func(), err error) {
	file := flock.New(filepath.Join(dir, name), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o644))
	got, err := try(file)
	for i := 1; i < tries && err == nil && !got; i++ {
		time.Sleep(pause)
		got, err = try(file)
	}

	// Some network file systems have no locks.
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) {
		return func() {}, nil
	}

	if err != nil {
		return nil, fmt.Errorf("cannot write into the run folder, or lock it: %w; use another %s", err, flag)
	}

	if !got {
		return nil, Occupied{fmt.Errorf("%s; wait until it has ended, or use another %s", held, flag)}
	}

	return func() { file.Close() }, nil
}
