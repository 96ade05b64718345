// Package experiment makes a federation of a configuration, in stages: Data (set and partition), Backbones, Protocol
// (what all machines have in common), Task (what was checked without an image) and Federation (with features). It may
// import the rest of federation except transport, and the bundles of models.
package experiment
