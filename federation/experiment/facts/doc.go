// Package facts describes an experiment across machines before training, and checks the conditions that a client sets
// on it. It imports nothing of the federation.
package facts
