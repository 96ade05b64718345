// Package spec defines what a run computes: the experiment with its clients, backbones, training plan and evaluation
// sets, and what two sides must have in common (RunSpec, Compatibility). It may import method, attack, the formats of
// messages and records, simulatedtime and models/clip.
package spec
