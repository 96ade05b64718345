// Package data holds labelled image sets, decodes them on several goroutines, and caches features of them on disk. It
// may import runtime, but neither methods nor the engine.
//
// Images are opened lazily: a set is a list of names until a decoder reads it. Every random number is a function of a
// seed and of names, and never depends on a global generator, on time or on the number of workers.
package data
