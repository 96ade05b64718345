// Package methodtest holds the one suite that every method and wrapper passes, and the toy backbone and clients it runs
// on: a few numbers wide, in memory, smooth, and simple enough to write down again elsewhere.
package methodtest
