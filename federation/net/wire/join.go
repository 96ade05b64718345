package wire

import (
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/certs"
)

// JoinRequest is what a client states when it joins. The server keeps it in its folder, with the proof of the client's
// key that the connection gave.
type JoinRequest struct {
	Proof       certs.Proof         `json:"proof"`
	RunSpec     spec.RunSpec        `json:"terms"`
	Participant message.Participant `json:"member"`
	Backbone    string              `json:"backbone"` // digest of the backbone's files
	Tokens      string              `json:"tokens"`   // digest of the classes' text tokens
	// Examples is the number of training examples and the largest weight of an upload; 0 if it is secret.
	Examples int    `json:"examples,omitempty"`
	Numerics string `json:"numerics"` // digest of a numerics.Fingerprint
}
