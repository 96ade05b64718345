// Package transport runs the clients of an experiment on other machines: it is a message.Cohort over NATS.
//
// The Server is a message.Cohort and gives orders to clients (NewClient), which keep their state in a folder. What
// both say to each other is in transport/exchange and transport/protocol, who signs it in transport/certs, who may use
// which subject in transport/subjects and transport/natsserver. Simulated clients run on machines of a queue in the
// same way: transport/workers.
//
// Nothing of a run is kept in NATS: an order is in the server's memory, or where it is large in a file of its folder,
// and a reply in the client's, until the other side says that it has it; what must outlast a crash is in the server's
// checkpoint and in the client's folder. So clients need no JetStream, and have no rights to it.
//
// Every order says which of a client's uploads counted last, and which of them a checkpoint of the server holds. So the
// client knows what to keep without a message of its own, and goes back where the server had to: both sides may be
// killed at any instant. A client that gets the same order again gives the same reply, which counts once.
package transport
