package filestamp

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

func status(st fs.FileInfo) (string, time.Time) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return "", time.Time{}
	}
	return fmt.Sprint(" ", s.Dev, " ", s.Ino, " ", s.Ctimespec.Nano()), time.Unix(0, s.Ctimespec.Nano())
}
