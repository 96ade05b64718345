package data

import (
	"fmt"
	"io/fs"
)

// FileStamp changes when the file does: size, modification time and, where the system tells them, the number of the
// file and the time of the last change of its status, which no program sets back as it may the modification time.
func FileStamp(st fs.FileInfo) string {
	return fmt.Sprint(st.Size(), " ", st.ModTime().UnixNano(), status(st))
}
