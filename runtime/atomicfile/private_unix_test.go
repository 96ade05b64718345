//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// ReadPrivate reads only files on which group and others have no permissions; WritePrivate writes such files.
func TestReadPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	goldentest.NoError(t, WritePrivate(path, text("secret")))
	for mode := os.FileMode(0o400); mode <= 0o777; mode++ {
		if mode&0o400 == 0 {
			continue
		}
		goldentest.NoError(t, os.Chmod(path, mode))
		b, err := ReadPrivate(path)
		if mode&0o077 == 0 {
			if err != nil || string(b) != "secret" {
				t.Errorf("mode %o: %q, %v", mode, b, err)
			}
		} else if !errors.Is(err, ErrNotPrivate) || !strings.Contains(err.Error(), "run chmod 600 "+path) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// A group may read root's file if the process does not run as root; others may not.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		ofRoot, asRoot bool
		want           os.FileMode
	}{{true, false, 0o040}, {true, true, 0}, {false, false, 0}, {false, true, 0}} {
		if got := allowed(c.ofRoot, c.asRoot); got != c.want {
			t.Errorf("%+v: %o", c, got)
		}
	}
}
