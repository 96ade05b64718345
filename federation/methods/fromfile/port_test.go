package fromfile

import "testing"

// Names of docs/onnx-method.md, by hand: kinds, their parts, names with slashes, and names without a kind. A port has
// the name that it was read from.
func TestPortsOfNames(t *testing.T) {
	for name, want := range map[string]port{
		"param/ctx":         {"param", "", "ctx"},
		"text/received/ctx": {"text", "received", "ctx"},
		"text/received":     {"text", "", "received"},
		"uploads/up/a/b":    {"uploads", "up", "a/b"},
		"uploads/a/up":      {"uploads", "", "a/up"},
		"next/state/c":      {"next", "state", "c"},
		"next/up":           {"next", "", "up"},
		"up/up/x":           {"up", "", "up/x"},
		"merged":            {"merged", "", ""},
		"classes/n":         {"", "", "classes/n"},
		"logits":            {"", "", "logits"},
	} {
		if got := parsePort(name); got != want || got.String() != name {
			t.Errorf("%s is %#v with the name %s, want %#v", name, got, got, want)
		}
	}
	if !parsePort("next/state/c").among(nextDown, nextState) || parsePort("next/state/c").among(nextDown, uploaded) {
		t.Error("the kind of next/state/c")
	}
}
