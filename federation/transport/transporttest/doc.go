// Package transporttest has helpers for tests of the transport: toy experiments, a certificate authority, signed and
// forged messages, slow links and lying operators. It imports the engine, methods and nats-server.
package transporttest
