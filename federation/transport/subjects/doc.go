// Package subjects defines the NATS subjects of a run, and which user may publish and subscribe to which. It imports
// certs only.
package subjects
