// Package engine runs federated experiments: one loop over rounds, one loop over local steps, whatever the method and
// whatever carries the messages.
//
// The server side (Server) sees instructions, replies and its own state; the client side (Worker) sees one client's
// data and state. Between them stands Cohort, the only seam. Both sides compile their graphs from the same method.
package engine
