// Package transport runs the clients of an experiment on other machines: it is an engine.Cohort over NATS.
//
// The Hub is the server's side, an Agent a client's. Nothing of a run is kept in NATS: an order is in the Hub's memory,
// or where it is large in a file of its folder, and a reply in the client's, until the other side says that it has it;
// what must outlast a crash is in the server's checkpoint and in the client's folder. So clients need no JetStream, and
// have no rights to it.
//
// Client K publishes under pf.RUN.from.K and hears what is under pf.RUN.to.K. NATS permits it nothing else, and the
// Hub, the only one who answers, does so nowhere else: NATS looks at the subject that a message is published to and not
// at the one that it names for the answer, so the Hub looks at that itself. Each client has a queue of its own in the
// Hub, which drops what is too much.
//
//	hello   which run is this: its identity, the configuration, the server's key
//	join    the card: terms, backbone, the client's key
//	beat    every two seconds: the client is there, and which order it has
//	order   (server to client) what to do. One that got lost is sent again after a beat that shows its absence
//	part    a piece of an order's tensors, where they are too many for one message
//	reply   the answer to an order, again and again until a receipt comes: taken, damaged, or its tensors are to come
//	put     a piece of a reply's tensors; the receipt says with a bit each which are there
//
// All but the pieces are signed, orders and receipts by the server, cards, beats and replies by the client, over a
// header that names the run, the client, the order's identity (a hash of all that it asks: round, kind, digest of its
// tensors), the attempt and the digest of the tensors that follow or come in pieces. The keys are those of the
// certificates, or each side makes one and the other remembers it (Identity). Orders are numbered, and a client takes
// none that is older than the newest; beats are, too. A message of another run, round or client, or one that comes
// again, is dropped and counted.
//
// Every order says which of a client's uploads counted last, and which of them a checkpoint of the server holds. So the
// client knows what to remember without a message of its own, and goes back where the server had to: both sides may be
// killed at any instant. A client that gets the same order again gives the same reply, which counts once.
//
// The turns of simulated clients are spread over workers (Dispatcher, Work) in the same way: what a host does with a
// member's messages and a member with the host's stands once (host, desk, exchange; Agent), a Hub and a Dispatcher are
// hosts, and an Agent has the role of a client or of one of the jobs that a worker does at a time. A job carries what
// its client remembers, so that any worker can do it and keeps nothing. A worker has the subjects pf.RUN.work.from.ID
// and pf.RUN.work.to.ID, with one more word for the job. Workers are trusted as the run itself is.
package transport
