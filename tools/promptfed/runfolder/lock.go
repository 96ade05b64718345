package runfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

// lock locks a folder for this process.
func lock(dir string) (release func(), err error) {
	return lockFor(dir, lockFile, (*flock.Flock).TryLock, "another promptfed works in "+dir)
}

// share locks a folder for processes that run different parts of the same sweep, and one part for this process.
func share(dir, part string) (release func(), err error) {
	all, err := lockFor(dir, lockFile, (*flock.Flock).TryRLock, "a promptfed without --array works in "+dir)
	if err != nil {
		return nil, err
	}
	own, err := lockFor(dir, lockFile+"-"+part, (*flock.Flock).TryLock, "another promptfed does this part of "+dir)
	if err != nil {
		all()
		return nil, err
	}
	return func() { own(); all() }, nil
}

// lockFor locks a file of a folder.
func lockFor(dir, name string, try func(*flock.Flock) (bool, error), held string) (release func(), err error) {
	l := flock.New(filepath.Join(dir, name), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o644))
	got, err := try(l)
	// Some network file systems have no locks.
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write into the run folder, or lock it: %w; use another --out", err)
	}
	if !got {
		return nil, Occupied{fmt.Errorf("%s; wait until it has ended, or use another --out", held)}
	}
	return func() { l.Close() }, nil
}
