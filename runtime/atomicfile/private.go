package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadPrivate reads a secret, such as a key or a token. If its group or others may read or change the file, the error
// names the mode to set. Exception: the group may read a file of root if the process does not run as root, because
// service managers and orchestrators pass secrets so. Windows has no such modes, so ReadPrivate reads every file there.
func ReadPrivate(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	st, err := file.Stat()
	if err != nil {
		return nil, err
	}

	if st.Mode()&fs.ModeCharDevice == 0 && othersModes(st) != 0 {
		return nil, fmt.Errorf("%s: %w (mode %#o): run chmod 600 %s", path, ErrNotPrivate, st.Mode().Perm(), path)
	}

	return io.ReadAll(file)
}

// ErrNotPrivate is the error of a secret that users other than its owner may read or change.
var ErrNotPrivate = errors.New("other users of this machine may read or change this secret")

// allowed returns the mode bits that a secret may have besides its owner's.
func allowed(ofRoot, asRoot bool) fs.FileMode {
	if ofRoot && !asRoot {
		return 0o040
	}
	return 0
}
