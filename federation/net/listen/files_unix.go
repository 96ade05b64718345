//go:build unix

package listen

import "syscall"

// mostConnections returns how many connections leave the process the files that its run needs; 0, for no limit, if the
// system does not state its limit of open files.
func mostConnections() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || uint64(limit.Cur) > 1<<20 {
		return 0
	}
	return max(int(limit.Cur)-reserved, int(limit.Cur)/2)
}
