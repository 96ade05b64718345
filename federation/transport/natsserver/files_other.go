//go:build !unix

package natsserver

// mostConnections is 0, for no limit: the system has none of files.
func mostConnections() int { return 0 }
