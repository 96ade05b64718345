package filestamp

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// status returns device, inode and change time of a file, and the change time as a time.
func status(st fs.FileInfo) (string, time.Time) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return "", time.Time{}
	}
	return fmt.Sprint(" ", s.Dev, " ", s.Ino, " ", s.Ctim.Nano()), time.Unix(0, s.Ctim.Nano())
}
