package subjects

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
)

// ID is what identities look like: of runs, processes, orders and attempts.
var ID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// NewID is the identity of a new run.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
