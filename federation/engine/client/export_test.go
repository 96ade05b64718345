package client

// ReceivedValues is how many forward passes at prompts as the server sent them a worker remembers.
func (w *Worker) ReceivedValues() int { return len(w.received.at) }
