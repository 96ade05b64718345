package data

import (
	"fmt"
	"io/fs"
	"syscall"
)

// status is what else tells a file from another and from itself before a change.
func status(st fs.FileInfo) string {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(" ", s.Dev, " ", s.Ino, " ", s.Ctimespec.Nano())
	}
	return ""
}
