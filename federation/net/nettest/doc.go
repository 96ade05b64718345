// Package nettest has helpers for tests of federation/net: toy experiments, a certificate authority and slow links. It
// imports the engine and methods.
package nettest
