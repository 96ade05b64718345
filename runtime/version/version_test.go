package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

// The settings are those that the Go tool records (go help buildvcs).
func TestNoted(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":            {{Key: "GOOS", Value: "linux"}, {Key: "vcs.modified", Value: "true"}},
		"0123456789ab":       {{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}},
		"01234":              {{Key: "vcs.revision", Value: "01234"}, {Key: "vcs.modified", Value: "false"}},
		"0123456789ab-dirty": {{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}},
	} {
		if got := noted(settings); got != want {
			t.Errorf("%v: %s, want %s", settings, got, want)
		}
	}
}

func TestStamp(t *testing.T) {
	defer func() { stamp = "" }()
	if Commit() != "unknown" || Version() != "unreleased" || String() != "unreleased, commit unknown" { // as in tests
		t.Errorf("%s: %s", Commit(), String())
	}
	stamp = "abc-dirty"
	if Commit() != stamp || !strings.HasSuffix(String(), ", commit abc-dirty") || strings.Contains(String(), "devel") {
		t.Errorf("%s: %s", Commit(), String())
	}
}
