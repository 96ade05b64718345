//go:build !unix

package runfolder

// lock does nothing on systems without file locks.
func lock(string) (release func(), err error) { return func() {}, nil }

// share does nothing on systems without file locks.
func share(string, string) (release func(), err error) { return func() {}, nil }
