package client

// InitialValues is how many forward passes at prompts as the server sent them a worker remembers.
func (w *Worker) InitialValues() int { return len(w.initial.at) }
