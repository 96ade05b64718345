//go:build !unix

package runfolder

// lock does nothing where files have no such locks.
func lock(string) (release func(), err error) { return func() {}, nil }

// share does nothing either.
func share(string, string) (release func(), err error) { return func() {}, nil }
