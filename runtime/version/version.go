// Package version returns the version of this program and the commit that it was built from. It imports nothing of this
// module.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// stamp is the output of git describe --always --dirty in a build by make (-ldflags -X), otherwise empty.
var stamp string

const (
	unreleased = "unreleased"
	unknown    = "unknown"
	dirty      = "-dirty" // suffix of a commit with uncommitted changes in the tree
)

// Version returns the version of the module, or unreleased.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "(devel)" {
		return unreleased
	}
	return cmp.Or(info.Main.Version, unreleased)
}

// Commit returns the commit of the build, with the suffix -dirty if the tree had changes. It is unknown if neither make
// nor the Go tool recorded it, as in tests.
func Commit() string {
	if stamp != "" {
		return stamp
	}

	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}

	return noted(info.Settings)
}

func noted(settings []debug.BuildSetting) string {
	revision, modified := unknown, ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = dirty
		}
	}

	if revision == unknown {
		return unknown
	}

	return revision + modified
}

// String returns both in one line.
func String() string {
	if commit := Commit(); !strings.Contains(Version(), strings.TrimSuffix(commit, dirty)) {
		return Version() + ", commit " + commit
	}
	return Version()
}
