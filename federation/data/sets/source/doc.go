// Package source holds the code that the readers of image sets share: their configuration, walks over folders, lists of
// images, arrays of pixels, and the rules that make splits. It may import federation/data and its formats.
package source
