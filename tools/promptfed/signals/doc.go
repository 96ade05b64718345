// Package signals stops the work of the program on signals: at once, or after the current round. It imports only the
// standard library.
package signals
