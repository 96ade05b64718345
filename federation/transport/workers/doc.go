// Package workers runs the training and evaluation of simulated clients on other machines: a Dispatcher gives jobs to
// the Workers of a queue. A job contains its client's state, so any worker can do it and keeps nothing. Each of a
// worker's concurrent jobs has the subjects pf.QUEUE.work.from.ID.JOB and pf.QUEUE.work.to.ID.JOB. Workers are trusted
// like the run's own process. It imports exchange and protocol.
package workers
