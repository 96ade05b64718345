// Package protocol defines the messages between the server of an experiment and its clients at other institutions:
// promptfed.proto, the code generated from it, the identities of instructions, and the checks of what a message holds.
// It imports the engine's messages and certs.
package protocol

//go:generate sh generate.sh
