// Package transport runs the clients of an experiment on other machines: its Server is a message.Cohort over NATS. It
// imports the engine, but no method.
//
// The Server sends instructions to clients (NewClient), which keep their state in a folder. The other packages:
// exchange connects the two and sends messages of any size, protocol defines the messages, certs their signatures,
// subjects and natsserver the permissions, and workers runs simulated clients on other machines in the same way.
//
// NATS stores nothing. An instruction is in the server's memory, or in a file of its folder if it is large; a reply is
// in the client's memory. Each stays there until the other side acknowledges it. The state that must survive a crash is
// in the server's checkpoint and in the client's folder. Clients therefore need no JetStream and have no rights to it.
//
// Every instruction names the client's upload that counted last, and the last one in the server's checkpoint. The
// client therefore knows which states to keep, and goes back when the server had to: both sides may be killed at any
// moment. A client that gets an instruction again sends the same reply, which counts once.
package transport
