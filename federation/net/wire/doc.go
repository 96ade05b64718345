// Package wire defines the messages between the server of an experiment and its clients at other institutions:
// promptfed.proto, the code generated from it, the identities of instructions, the checks of what a message holds, and
// what both sides share of a connection. It imports the engine's messages and certs.
package wire

//go:generate sh generate.sh
