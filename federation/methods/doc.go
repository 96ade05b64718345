// Package methods lists the published methods and wrappers in one table, builds stacks of them from options, and says
// what a whole stack needs. Methods are in packages below it, by subject; it imports all of these.
package methods
