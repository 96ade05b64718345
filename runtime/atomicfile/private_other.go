//go:build !unix

package atomicfile

import "io/fs"

func othersModes(fs.FileInfo) fs.FileMode { return 0 }
