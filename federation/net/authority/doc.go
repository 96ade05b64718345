// Package authority runs a small certificate authority in two folders: one with the certificates of a run's server,
// clients, workers and status, and a separate one with the authority's own key. It makes requests, approves, renews and
// revokes certificates, and returns TLS configurations of them. It imports certs.
package authority
