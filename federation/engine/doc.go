// Package engine runs federated experiments: one loop over rounds, whatever the method and whatever carries the
// messages.
//
// The server side (Server) sees instructions, replies and its own state; the client side (local.Worker) sees one
// client's data and state. message.Cohort is the only interface between them. spec.Experiment says what is computed.
package engine
