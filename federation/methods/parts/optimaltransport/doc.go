// Package optimaltransport solves entropic optimal transport: as graph nodes between the patches of an image and the
// prompts of a class, and as numbers between the images of a client and their classes.
package optimaltransport
