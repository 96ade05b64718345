// Package certs holds the keys by which both sides of a run sign and recognise each other: keys of certificates or
// remembered keys, and lists of revoked certificates. It imports neither the engine nor NATS.
package certs
