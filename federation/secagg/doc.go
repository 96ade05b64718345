// Package secagg lets a server learn the sum of its clients' vectors and nothing else of them: pairwise masks that
// cancel in the sum, and recovery of the masks of clients that drop out. It is pure: two state machines, Client and
// Server, and the messages between them. Nothing here sends, waits or knows what the vectors mean.
//
// Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, figure 4, with the
// lines for an active server. One session, of one round:
//
//	AdvertiseKeys     client: Advertise -> server: Join            server: Roster
//	ShareKeys         client: Share     -> server: Deal            server: Inboxes
//	MaskedInput       client: Mask      -> server: Add             server: Unmask
//	ConsistencyCheck  client: Agree     -> server: Agree           server: Signatures
//	Unmasking         client: Reveal    -> server: Reveal          server: Sum
//
// A client that is missing at one step is left out of those that follow; what it masked is recovered from the others as
// long as Threshold of them stay to the end, and below that there is no sum. Both sides may be started again at any
// step, from State and from Progress: the same words have the same answer, byte for byte, and others none.
//
// What it rests on: X25519 (crypto/ecdh), HKDF with SHA-256 (crypto/hkdf), AES-256-GCM for shares on their way through
// the server, AES-256 in counter mode for masks, and Shamir's secret sharing over the scalars of Ristretto255
// (cloudflare/circl, constant time there; hashicorp's Shamir stops at 255 shares, one for each client of a round).
// Identity gives the signatures.
//
// Against a server that lies a client signs its keys, bound to the Terms, and takes no others; takes one roster, of
// less than twice the threshold; gives one vector; signs one question, about all that sent shares, and never for a
// client's own mask together with its pairwise key; and gives its shares once Threshold clients signed the same roster,
// senders, parameters and question. Without the last, questions that differ from client to client open a sum of about 2
// n - n²/T of n clients (TestDifferentQuestions). Masks depend on the same view: they do not cancel between clients
// that received different things, such as parameters for which all but one do not move (Pasquini, Francati and
// Ateniese, Eluding Secure Aggregation in Federated Learning via Model Inconsistency, CCS 2022).
//
// All that holds while fewer than 2 T - n clients collude with the server. Up to T - 1 that do learn the sum of the
// others. A client can upload any vector: sums hide attackers too. One that sends another a share that cannot be opened
// has that one drop out.
package secagg
