// Package attack holds tests that run promptfed serve as a process and attack it as one of its own members would, with
// valid certificates of promptfed certs: with the certificate of a client, with that for the status, with a client that
// lies. Each test says what must not happen, and that the run of the other clients comes to its end all the same.
//
// TestLyingServer is the other way round: promptfed join as a process, and a server that lies to it under secure
// aggregation.
//
// What a NATS server can do that somebody else runs is tested in federation/transport (TestOperator).
package attack
