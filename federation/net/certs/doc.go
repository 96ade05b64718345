// Package certs holds the keys by which both sides of a run recognise each other in TLS, and by which clients sign
// messages for other clients: keys of certificates or remembered keys, and lists of revoked certificates. It imports
// neither the engine nor NATS.
package certs
