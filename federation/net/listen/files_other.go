//go:build !unix

package listen

// mostConnections returns 0, for no limit: the system has no limit of open files.
func mostConnections() int { return 0 }
