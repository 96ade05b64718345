// Package natsserver runs a NATS server with JetStream inside the process of a run, which only its workers may use. It
// imports certs and nats-server, but not the engine.
package natsserver
