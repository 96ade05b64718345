//go:build unix

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

func othersModes(st fs.FileInfo) fs.FileMode {
	s, ok := st.Sys().(*syscall.Stat_t)
	return st.Mode().Perm() & 0o077 &^ allowed(ok && s.Uid == 0, os.Geteuid() == 0)
}
