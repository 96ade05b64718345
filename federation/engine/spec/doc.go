// Package spec says what a run computes: the experiment with its clients, backbones, training plan and evaluation sets,
// and what two sides must have in common (RunSpec, Compatibility).
package spec
