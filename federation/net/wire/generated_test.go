package wire_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The generated code belongs to promptfed.proto: generate.sh writes the digest of the file that it read.
func TestGenerated(t *testing.T) {
	source, err := os.ReadFile("promptfed.proto")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("promptfed.pb.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("promptfed.proto: %x\n", sha256.Sum256(source)); !strings.HasSuffix(string(code), want) {
		t.Error("promptfed.proto changed: run go generate ./federation/net/wire")
	}
}
