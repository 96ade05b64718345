// Package tiny holds the bundled backbones.
package tiny

import _ "embed"

//go:embed merges.txt
var merges []byte

// Merges is the vocabulary.
func Merges() []byte { return merges }
