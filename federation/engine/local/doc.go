// Package local is the side of one client: it compiles a method to graphs, trains its parameters on the client's data,
// computes statistics for the server, and evaluates.
package local
