// Package progress displays the progress of long work: one live line on a terminal, and plain lines with the remaining
// time elsewhere. It may import federation and configs, and nothing of tools/lab.
package progress
