// Package attack holds tests that run promptfed serve as a process and attack it as a member would, with valid
// certificates of promptfed certs: that of a client, that for the status, and that of a client that lies. Each test
// states what must not happen, and that the run of the other clients completes.
// TestLyingServer does the reverse: it runs promptfed join as a process, and a server that lies to it under secure
// aggregation.
// federation/transport (TestOperator) tests what a NATS server of somebody else can do.
package attack
