// Package pickle reads Python pickles of NumPy arrays, lists and texts, and .npy files, without running any code. It
// imports no other package of the project.
package pickle
