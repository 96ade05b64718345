// Package exchange is what the members of a run have in common, clients of an experiment and the jobs of a worker
// alike: how they connect, join, send heartbeats, get instructions and reply to them, with tensors of any size and with
// messages that get lost. A Host, with a Session for each member, is the run's side, a Client the member's.
//
// A member publishes under an address of its own and hears what is under another (transport/subjects). NATS permits it
// nothing else, and the host, the only one who answers, does so nowhere else: NATS looks at the subject that a message
// is published to and not at the one that it names for the answer, so the host looks at that itself. Each member has a
// queue of its own in the host, which drops what is too much.
//
//	hello   which run is this: its identity, the configuration, the server's key
//	join    the request: what must agree on both sides, the member's key
//	beat    the heartbeat, every two seconds: the member is there, and which order it has
//	order   (to the member) what to do. One that got lost is sent again after a heartbeat that shows its absence
//	part    a piece of an order's tensors, where they are too many for one message
//	reply   the answer to an order, again and again until a receipt comes: taken, damaged, or its tensors are to come
//	put     a piece of a reply's tensors; the receipt says with a bit each which are there
//
// All but the pieces are signed, orders and receipts by the host, requests, heartbeats and replies by the member, over
// a header that names the run, the member, the order's identity (a hash of all that it asks: round, kind, digest of its
// tensors), the attempt and the digest of the tensors that follow or come in pieces. The keys are those of the
// certificates, or each side makes one and the other remembers it (certs.Identity). Orders are numbered, and a member
// takes none that is older than the newest; heartbeats are, too. A message of another run, round or member, or one that
// comes again, is dropped and counted.
package exchange
