// Package published splits examples as the public code of papers does: the same steps, in the same order, on the draws
// of Python's and NumPy's generators with the same seeds, so that every client holds exactly the same examples. The
// public code has no val list; val is split by the same rule after a shuffle from a separate generator, which changes
// no draw of the public code. It may import federation/data, pyrand and the package allocation.
package published
