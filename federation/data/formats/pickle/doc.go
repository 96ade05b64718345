// Package pickle reads Python pickles of NumPy arrays, lists and texts, and .npy files, without running any code. It
// may import runtime/unpickle.
package pickle
