// Package linalg has arithmetic of named tensors and matrices that methods share: distances, medians, orthonormal
// columns. It imports runtime/tensor and gonum.
package linalg
