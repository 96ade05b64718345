// Package secagg lets a server learn the sum of its clients' vectors and nothing else of them: pairwise masks that
// cancel in the sum, and recovery of the masks of clients that drop out. It is pure: two state machines, Client and
// Server, and the messages between them. Nothing here sends, waits or knows what the vectors mean.
//
// Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, figure 4, without
// the lines for an active server. One session, of one round:
//
//	AdvertiseKeys  client: Advertise -> server: Join            server: Roster
//	ShareKeys      client: Share     -> server: Deal            server: Inbox
//	MaskedInput    client: Mask      -> server: Add             server: Unmask
//	Unmasking      client: Reveal    -> server: Reveal          server: Sum
//
// A client that is missing at one step is left out of those that follow; what it masked is recovered from the others as
// long as Threshold of them stay to the end, and below that there is no sum.
//
// What it rests on: X25519 (crypto/ecdh), HKDF with SHA-256 (crypto/hkdf), AES-256-GCM for shares on their way through
// the server, AES-256 in counter mode for masks, and Shamir's secret sharing over the scalars of Ristretto255
// (cloudflare/circl, constant time there; hashicorp's Shamir stops at 255 shares, one for each client of a round).
//
// What it does not defend against: a server that lies, as by giving clients different rosters (keys are not signed),
// with these exceptions: a client answers Unmasking once only, never gives a client's own mask together with its
// pairwise key, and never takes a roster of more than twice the threshold, so that a server cannot ask two halves for
// either. Clients that collude with the server, up to Threshold-1 of them, learn the sum of the others. A client can
// upload any vector: sums hide attackers too.
package secagg
