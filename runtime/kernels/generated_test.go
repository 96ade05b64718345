package kernels

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
)

// device.ptx is of this device.h and device.cu, and has the kernels that kernels.c starts.
func TestDeviceCodeIsCurrent(t *testing.T) {
	source := append(filetest.Read(t, "device.h"), filetest.Read(t, "device.cu")...)
	first, _, _ := strings.Cut(deviceCode, "\n")
	if want := fmt.Sprintf("%x", sha256.Sum256(source)); !strings.HasSuffix(first, want) {
		t.Errorf("device.ptx says %q, want the sum %s: run generate.sh", first, want)
	}
	for _, line := range strings.Split(string(filetest.Read(t, "device.cu")), "\n") {
		if name, ok := strings.CutPrefix(line, "KERNEL "); ok {
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "ALL_THREADS "), "(")
			if !strings.Contains(deviceCode, ".entry "+name+"(") {
				t.Errorf("device.ptx has no kernel %s", name)
			}
		}
	}
}
