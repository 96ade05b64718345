// Package listen accepts the TLS connections of a run's clients for an HTTP server, with limits on connections and
// handshakes, and closes connections whose certificate was revoked or has expired. It imports certs and wait only.
package listen
