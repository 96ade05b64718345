package source

import "testing"

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{"Training": "train", "VALIDATION": "val", "dev": "val",
		"test_set": "test", "trainee": "", "contest": "", "": ""} {
		if got := SplitName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
