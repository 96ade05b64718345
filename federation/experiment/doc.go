// Package experiment turns a configuration into a running federation: it opens the data and the backbones, partitions
// the examples among clients, computes features and builds the method. It may import the rest of federation except
// transport, and the bundles of models.
package experiment
