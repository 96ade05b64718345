// Package transport runs the clients of an experiment on other machines: it is an engine.Cohort over NATS JetStream.
//
// The Hub is the server's side. It keeps one stream of orders, with one subject a client of which only the newest order is
// kept, one work queue of replies, one key-value bucket of members, and for payloads above the message limit one bucket of
// objects a client. An Agent is a client's side. It pulls its orders with a durable consumer, acknowledges an order once the
// reply is stored, and says in the meantime that it is at work; so redelivery to a client that crashed, duplicates and lost
// connections are JetStream's to deal with, and there is no retry protocol here beside it.
//
// Every order says which of a client's uploads counted last, and which of them a checkpoint of the server holds. So the client
// knows what to remember without a message of its own, and goes back where the server had to: both sides may be killed at
// any instant.
//
// An order's identity is a hash of all it asks. A client that gets the same order again gives the same reply, which counts
// once; a reply to anything but the order that the server waits for is dropped.
package transport
