// Package client runs a client of an experiment at another institution: it joins the server of the run, and executes
// the server's instructions with its state in a folder. It imports the engine and wire, but no method and no server.
package client
