package filestamp

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// Of returns a stamp that changes with the file: size, modification time and, if the system has them, the inode and the
// time of the last status change. A program can set back the modification time, but not the latter.
func Of(st fs.FileInfo) string {
	number, _ := status(st)
	return fmt.Sprint(st.Size(), " ", st.ModTime().UnixNano(), number)
}

// Settled reports whether a later change of the file gets another stamp: the times of the file are older than the clock
// steps of the file system. A step is at most 10 ms if a time is not a multiple of 10 ms, otherwise at most 2 s (FAT).
func Settled(st fs.FileInfo, now time.Time) bool {
	_, last := status(st)
	if st.ModTime().After(last) {
		last = st.ModTime()
	}

	step := 2 * time.Second
	if last.Nanosecond()%int(10*time.Millisecond) != 0 {
		step = 50 * time.Millisecond // with a margin for a late clock
	}

	return now.Sub(last) > step
}

// RealPath returns the absolute path of a file that exists, without symbolic links.
func RealPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(real)
}
