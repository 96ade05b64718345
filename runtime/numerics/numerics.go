// Package numerics describes everything besides a graph and its inputs that may change a bit of the results: processor,
// compilers, libraries, and options of sessions. It imports nothing of this module.
package numerics

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
)

// Version counts changes of this program that change a bit of results while the rest of Fingerprint stays the same:
// changes of operators in C, of the graphs of towers and methods, of how images are decoded, resampled or synthesised,
// also by a library.
const Version = 3

// Fingerprint is equal for computations that return the same bits for the same graph and inputs on the CPU. On a GPU
// equal fingerprints promise nothing. ort.Options.Fingerprint returns that of a session.
type Fingerprint struct {
	Version   int    `json:"version"`   // Version
	System    string `json:"system"`    // operating system and architecture
	Processor string `json:"processor"` // instruction sets, by which libraries select code
	Compilers string `json:"compilers"` // Go (with its image decoders), C compiler, C library
	Library   string `json:"onnxruntime"`
	Provider  string `json:"provider"`
	Precision string `json:"precision,omitempty"` // of products, unless it is float32

	Optimization string `json:"optimization"`       // level of graph optimisation
	Threads      int    `json:"threads"`            // within one operator
	Prepack      bool   `json:"prepack"`            // weights are packed
	OwnProducts  bool   `json:"own_products"`       // the operator Product computes products with packed weights
	Products     string `json:"products,omitempty"` // what computes them, if an option names it, not the processor
	Programs     string `json:"programs,omitempty"` // digest of files that stand in place of graphs
}

// MachineFingerprint returns the part of a fingerprint that depends on the machine and on Go. The caller adds C
// compiler and library.
func MachineFingerprint() Fingerprint {
	return Fingerprint{Version: Version, System: runtime.GOOS + "/" + runtime.GOARCH, Processor: processor(),
		Compilers: runtime.Version()}
}

// processor lists the instruction sets that ONNX Runtime, the GNU C library and runtime/kernels look for.
func processor() string {
	var has []string
	for _, set := range []struct {
		name string
		has  bool
	}{
		{"sse4.1", cpu.X86.HasSSE41}, {"avx", cpu.X86.HasAVX}, {"f16c", cpu.X86.HasF16C}, {"fma", cpu.X86.HasFMA},
		{"avx2", cpu.X86.HasAVX2}, {"avxvnni", cpu.X86.HasAVXVNNI}, {"avxvnniint8", cpu.X86.HasAVXVNNIInt8},
		{"avx512f", cpu.X86.HasAVX512F}, {"avx512bw", cpu.X86.HasAVX512BW}, {"avx512dq", cpu.X86.HasAVX512DQ},
		{"avx512vl", cpu.X86.HasAVX512VL}, {"avx512cd", cpu.X86.HasAVX512CD}, {"avx512vnni", cpu.X86.HasAVX512VNNI},
		{"avx512bf16", cpu.X86.HasAVX512BF16}, {"amxtile", cpu.X86.HasAMXTile}, {"amxint8", cpu.X86.HasAMXInt8},
		{"amxbf16", cpu.X86.HasAMXBF16},
		{"asimd", cpu.ARM64.HasASIMD}, {"fphp", cpu.ARM64.HasFPHP}, {"asimdhp", cpu.ARM64.HasASIMDHP},
		{"asimddp", cpu.ARM64.HasASIMDDP}, {"asimdfhm", cpu.ARM64.HasASIMDFHM}, {"i8mm", cpu.ARM64.HasI8MM},
		{"sve", cpu.ARM64.HasSVE}, {"sve2", cpu.ARM64.HasSVE2},
	} {
		if set.has {
			has = append(has, set.name)
		}
	}

	return strings.Join(has, " ")
}

// String returns JSON, which is equal only for equal fingerprints.
func (f Fingerprint) String() string {
	b, err := json.Marshal(f)
	if err != nil { // strings, numbers and booleans always have JSON
		panic(err)
	}
	return string(b)
}

// Digest returns the SHA-256 of String, in hex.
func (f Fingerprint) Digest() string {
	sum := sha256.Sum256([]byte(f.String()))
	return hex.EncodeToString(sum[:])
}

// Differences lists the fields that differ between two fingerprints, with their JSON names and values.
func (f Fingerprint) Differences(other Fingerprint) (out []string) {
	a, b := reflect.ValueOf(f), reflect.ValueOf(other)
	for i := range a.NumField() {
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); x != y {
			out = append(out, fmt.Sprintf("%s: %.300q, %.300q", a.Type().Field(i).Tag.Get("json"), fmt.Sprint(x),
				fmt.Sprint(y)))
		}
	}

	return out
}
