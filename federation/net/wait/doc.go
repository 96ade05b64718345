// Package wait has pauses that end with a context. It imports nothing of this module.
package wait
