// Package secagg implements secure aggregation: a server learns the sum of its clients' vectors and nothing else about
// them. Pairwise masks cancel in the sum, and the masks of clients that drop out are recovered. The package holds two
// state machines, Client and Server, and their messages. It imports no transport, engine or method.
//
// Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, figure 4 with its
// steps for an active server, and with verifiable secret sharing. A session covers one round:
//
//	AdvertiseKeys     client: Advertise -> server: Join            server: Roster
//	ShareKeys         client: Share     -> server: Deal            server: Inboxes
//	Complaints        client: Check     -> server: Check           server: Exclude
//	MaskedInput       client: Mask      -> server: Add             server: Unmask
//	ConsistencyCheck  client: Agree     -> server: Agree           server: Signatures
//	Unmasking         client: Reveal    -> server: Reveal          server: Sum
//
// A client that is missing in one step is left out of the next ones. If it has already masked its vector, its masks are
// recovered from the others as long as Threshold of them stay to the end. With fewer there is no sum. Both sides can
// restart at any step, from State and from Progress: a repeated message gets the same answer, byte for byte, and a
// different one is refused.
//
// A client that lies is named and left out. An honest client never is, however many others lie together. A dealer signs
// each encrypted share and commits to each share; a receiver that complains proves what the encrypted share holds; and
// each share revealed in the end must fit its commitment. Commitments that do not belong to one secret are found at the
// end of a session, or at once in a Strict one. A session therefore has its sum as long as Threshold clients are honest
// and stay. No step shows the content of a vector: a client can upload any vector, since sums hide attackers too.
//
// The cryptography: the group Ristretto255 for key agreement, commitments, Shamir's secret sharing and proofs of equal
// logarithms (cloudflare/circl, constant time there; hashicorp's Shamir has no commitments), HKDF with SHA-256
// (crypto/hkdf), AES-256-GCM for shares that pass through the server, and AES-256 in counter mode for masks. Identity
// provides the signatures.
//
// Against a dishonest server a client signs its keys together with the Terms and accepts no others; accepts one roster,
// of less than twice the threshold; opens and shows only what a dealer signed; uploads one vector; signs one question,
// which must cover all clients that may upload and never ask for a client's own mask together with its pairwise key;
// and reveals its shares only after Threshold clients have signed the same roster, uploaders, parameters and question.
// Without the last rule, questions that differ between clients open a sum of about 2 n - n²/T of n clients
// (TestDifferentQuestions). Masks depend on the same view: they do not cancel between clients that received different
// data, such as parameters at which only one client has a gradient (Pasquini, Francati and Ateniese, Eluding Secure
// Aggregation in Federated Learning via Model Inconsistency, CCS 2022).
//
// These guarantees hold while fewer than 2 T - n clients collude with the server. Up to T - 1 colluding clients learn
// the sum of the others.
package secagg
