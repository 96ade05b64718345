// Package exchange connects the server of a run with its members: clients of an experiment, and workers. They join,
// send heartbeats, get instructions and reply, with tensors of any size and over connections that lose messages. A Host
// with a Session for each member is the server's side, a Client the member's. It imports protocol, certs and subjects.
//
// A member publishes under its own address and subscribes to its own address only (transport/subjects). NATS permits it
// nothing else, and only the host answers, under that address. NATS checks the subject of a message but not its reply
// subject, so the host checks the reply subject itself. Each member has its own queue in the host, which drops messages
// beyond its size.
//
//	hello   request for the run's identity, the configuration and the server's key
//	join    request to join: what must agree on both sides, and the member's key
//	beat    the heartbeat, every two seconds: the member is running, and its current instruction
//	order   (to the member) an instruction. A lost one is sent again after a heartbeat that does not name it
//	part    a piece of an instruction's tensors, if they are too large for one message
//	reply   the answer to an instruction, repeated until a receipt comes: taken, damaged, or tensors missing
//	put     a piece of a reply's tensors; the receipt has one bit for each piece that arrived
//
// All messages except pieces are signed: instructions and receipts by the host; requests, heartbeats and replies by the
// member. The signature covers a header with the run, the member, the identity of the instruction (a hash of its round,
// kind and the digest of its tensors), the attempt, and the digest of the tensors that follow or come in pieces. The
// keys belong to the certificates; without certificates each side makes a key and the other side remembers it
// (certs.Identity). Instructions and heartbeats are numbered, and an older one than the newest is dropped. So is a
// message of another run, round or member, or one that was received before; dropped messages are counted.
package exchange
