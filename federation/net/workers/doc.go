// Package workers runs the training and evaluation of simulated clients on other machines, over a work queue of NATS
// JetStream: a Dispatcher publishes jobs, and Workers pull them and send results. A job contains its client's state, so
// any worker can execute it and keeps nothing. Workers are trusted like the run's own process. The package imports the
// engine's messages and the NATS client.
package workers
