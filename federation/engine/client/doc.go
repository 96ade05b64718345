// Package client is the client side: it compiles a method to graphs, trains its parameters on a client's data, computes
// statistics for the server, and evaluates. It may import method, attack, privacy/noise, the other packages of engine
// but not engine itself, and runtime.
package client
