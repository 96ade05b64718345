// Package filestamp tells whether a file is the one that was read, without reading it again.
package filestamp

import (
	"fmt"
	"io/fs"
	"time"
)

// Of changes when the file does: size, modification time and, where the system tells them, the number of the file and
// the time of the last change of its status, which no program sets back as it may the modification time.
func Of(st fs.FileInfo) string {
	number, _ := status(st)
	return fmt.Sprint(st.Size(), " ", st.ModTime().UnixNano(), number)
}

// Settled tells whether a change of the file from now on gets another stamp: its times are older than the steps that
// the system counts them in. Those steps are 10 ms at most where a time shows parts of one, elsewhere 2 s at most (of
// FAT).
func Settled(st fs.FileInfo, now time.Time) bool {
	_, last := status(st)
	if st.ModTime().After(last) {
		last = st.ModTime()
	}
	step := 2 * time.Second
	if last.Nanosecond()%int(10*time.Millisecond) != 0 {
		step = 50 * time.Millisecond // with room for a clock that steps late
	}
	return now.Sub(last) > step
}
