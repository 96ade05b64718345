// Package engine runs federated experiments: one loop over rounds, for every method and every kind of Cohort. It may
// import method, the packages below engine and privacy/noise; no published method and no transport.
//
// The server side sees instructions, replies and its own state; round.go has the round. The client side (client.Worker)
// sees one client's data and state. message.Cohort is the only interface between them; cohort.go puts it together.
// spec.Experiment says what is computed.
package engine
