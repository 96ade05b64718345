// Package attack holds tests that run promptfed serve as a process and attack it: as a member with a valid certificate,
// as the status user, and as somebody without a certificate. The attackers call the server without the code of
// promptfed join, or write HTTP/2 frames. Other tests run promptfed join as a process and a server that lies to it.
// Each test states what must not happen, and that the run of the other clients completes.
package attack
