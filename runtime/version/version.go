// Package version says which program this is: its version, and the commit that it was built from.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// stamp is what git describe --always --dirty said where make built the program (-ldflags -X); empty elsewhere.
var stamp string

const (
	unreleased = "unreleased"
	unknown    = "unknown"
	dirty      = "-dirty" // ends a commit whose tree had changes that were not committed
)

// Version is that of the module, or unreleased.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "(devel)" {
		return unreleased
	}
	return cmp.Or(info.Main.Version, unreleased)
}

// Commit is what the program was built from, with -dirty behind it where the tree had changes; unknown where neither
// make nor the Go tool noted it, as in tests.
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

// String is both in one line.
func String() string {
	if commit := Commit(); !strings.Contains(Version(), strings.TrimSuffix(commit, dirty)) {
		return Version() + ", commit " + commit
	}
	return Version()
}
