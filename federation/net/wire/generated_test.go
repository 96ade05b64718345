package wire_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
)

// The generated code belongs to promptfed.proto: generate.sh writes the digest of the file that it read.
func TestGenerated(t *testing.T) {
	source := filetest.Read(t, "promptfed.proto")
	code := filetest.Read(t, "promptfed.pb.go")
	if want := fmt.Sprintf("promptfed.proto: %x\n", sha256.Sum256(source)); !strings.HasSuffix(string(code), want) {
		t.Error("promptfed.proto changed: run go generate ./federation/net/wire")
	}
}
