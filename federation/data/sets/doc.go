// Package sets opens labelled image sets in the layouts in which they are distributed. It may import federation/data,
// the packages below it, and models/synthetic.
package sets
