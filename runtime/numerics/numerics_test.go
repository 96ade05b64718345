package numerics

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// Each field alone changes the digest and is named in the differences.
func TestFingerprint(t *testing.T) {
	base := MachineFingerprint()
	if base.Version != Version || base.System != runtime.GOOS+"/"+runtime.GOARCH ||
		base.Compilers != runtime.Version() {
		t.Errorf("%+v", base)
	}
	if runtime.GOARCH == "amd64" && !strings.Contains(base.Processor, "sse4.1") {
		t.Errorf("the processor has %q", base.Processor)
	}
	if d := base.Differences(base); len(d) != 0 {
		t.Errorf("a fingerprint differs from itself in %q", d)
	}
	seen := map[string]bool{base.Digest(): true}
	for i := range reflect.TypeFor[Fingerprint]().NumField() {
		other := base
		switch v := reflect.ValueOf(&other).Elem().Field(i); v.Kind() {
		case reflect.Int:
			v.SetInt(v.Int() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			v.SetString(v.String() + " other")
		}
		name := reflect.TypeFor[Fingerprint]().Field(i).Tag.Get("json")
		if d := base.Differences(other); len(d) != 1 || !strings.HasPrefix(d[0], name+": ") {
			t.Errorf("%s: the differences are %q", name, d)
		}
		if seen[other.Digest()] {
			t.Errorf("%s does not change the digest", name)
		}
		seen[other.Digest()] = true
		var back Fingerprint
		if err := json.Unmarshal([]byte(other.String()), &back); err != nil || back != other {
			t.Errorf("%s: read back as %+v (%v)", name, back, err)
		}
	}
}
