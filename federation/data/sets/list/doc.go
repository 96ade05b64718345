// Package list reads images that a CSV or JSON file names with their labels. It may import federation/data and the
// package source.
package list
