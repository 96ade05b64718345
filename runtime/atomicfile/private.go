package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadPrivate reads a secret, such as a key or a token. A file that its group or others may read or change is an error
// that names the mode to set. Only a file of root may be open to its group, for a process that is not root's: that is
// how service managers and orchestrators hand out secrets. Windows has no such modes, so every file is read there.
func ReadPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode()&fs.ModeCharDevice == 0 && othersModes(st) != 0 {
		return nil, fmt.Errorf("%s: %w (mode %#o): run chmod 600 %s", path, ErrOpenToOthers, st.Mode().Perm(), path)
	}
	return io.ReadAll(f)
}

// ErrOpenToOthers is the error of a secret that more users than its owner may read or change.
var ErrOpenToOthers = errors.New("other users of this machine may read or change this secret")

// allowed are the bits of a mode that a secret may have beside its owner's.
func allowed(ofRoot, asRoot bool) fs.FileMode {
	if ofRoot && !asRoot {
		return 0o040
	}
	return 0
}
