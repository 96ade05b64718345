// Package modules has learned layers that methods share, with PyTorch's layouts and initial values: linear layers,
// layer norms and attention.
package modules
