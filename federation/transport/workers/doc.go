// Package workers spreads the training and evaluation of simulated clients over other machines: a Dispatcher gives jobs
// to the Workers of a queue. A job carries its client's state, so that any worker can do it and keeps nothing. A worker
// has the subjects pf.QUEUE.work.from.ID and pf.QUEUE.work.to.ID, with one more word for each of the jobs that it does
// at a time. Workers are trusted as the run itself is.
package workers
