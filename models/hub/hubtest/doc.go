// Package hubtest is a server for tests that speaks the protocol of the Hugging Face hub, and that can fail in the ways
// of networks and of hostile servers. It imports nothing of this module.
package hubtest
