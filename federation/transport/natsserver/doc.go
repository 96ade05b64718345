// Package natsserver runs a NATS server inside the process of a run with the permissions of transport/subjects, and
// writes the configuration of a nats-server with the same permissions. It imports nats-server, but not the engine.
package natsserver
