// Package secagg lets a server learn the sum of its clients' vectors and nothing else of them: pairwise masks that
// cancel in the sum, and recovery of the masks of clients that drop out. It is pure: two state machines, Client and
// Server, and the messages between them. Nothing here sends, waits or knows what the vectors mean.
//
// Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, figure 4, with the
// lines for an active server, and with shares that everybody can check. One session, of one round:
//
//	AdvertiseKeys     client: Advertise -> server: Join            server: Roster
//	ShareKeys         client: Share     -> server: Deal            server: Inboxes
//	Complaints        client: Check     -> server: Check           server: Settle
//	MaskedInput       client: Mask      -> server: Add             server: Unmask
//	ConsistencyCheck  client: Agree     -> server: Agree           server: Signatures
//	Unmasking         client: Reveal    -> server: Reveal          server: Sum
//
// A client that is missing at one step is left out of those that follow; what it masked is recovered from the others as
// long as Threshold of them stay to the end, and below that there is no sum. Both sides may be started again at any
// step, from State and from Progress: the same words have the same answer, byte for byte, and others none.
//
// A client that lies is named and left out, and no honest one ever is, whoever else lies with it: a dealer signs each
// encrypted share and is committed to each share, a receiver that complains shows with a proof what the encrypted share
// holds, and a share that is given in the end must be the committed one. Commitments that are not those of one secret
// show in the end of a session, or at once in a Strict one. So a session has its sum as long as Threshold clients are
// honest and stay. What is in a vector shows in no step: a client can upload any, since sums hide attackers too.
//
// What it rests on: the group Ristretto255 for agreements, commitments, Shamir's secret sharing and proofs of equal
// logarithms (cloudflare/circl, constant time there; hashicorp's Shamir has no commitments), HKDF with SHA-256
// (crypto/hkdf), AES-256-GCM for shares on their way through the server, and AES-256 in counter mode for masks.
// Identity gives the signatures.
//
// Against a server that lies a client signs its keys, bound to the Terms, and takes no others; takes one roster, of
// less than twice the threshold; opens and shows nothing that a dealer did not sign; gives one vector; signs one
// question, about all that may upload, and never for a client's own mask together with its pairwise key; and gives its
// shares once Threshold clients signed the same roster, uploaders, parameters and question. Without the last, questions
// that differ from client to client open a sum of about 2 n - n²/T of n clients (TestDifferentQuestions). Masks depend
// on the same view: they do not cancel between clients that received different things, such as parameters for which all
// but one do not move (Pasquini, Francati and Ateniese, Eluding Secure Aggregation in Federated Learning via Model
// Inconsistency, CCS 2022).
//
// All that holds while fewer than 2 T - n clients collude with the server. Up to T - 1 that do learn the sum of the
// others.
package secagg
