package client

// InitialValues returns the number of forward passes that a worker remembers, all at prompts from the server.
func (w *Worker) InitialValues() int { return len(w.initial.at) }

// CheckBatch and Products are for tests in client_test.
var CheckBatch, Products = checkBatch, products
