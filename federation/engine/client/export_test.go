package client

// InitialValues returns the number of forward passes that a worker remembers, all at prompts from the server.
func (w *Worker) InitialValues() int { return len(w.initial.at) }

// CheckBatch and Products are for tests in client_test.
var CheckBatch, Products = checkBatch, products

// ImageParts sets how many products must be saved for each number (see leastProducts) and how many bytes of values of
// images are kept. ImageValues returns their number and size.
func (w *Worker) ImageParts(least float64, bytes int) {
	w.c.leastProducts, w.c.images.capacity = least, bytes
}
func (w *Worker) ImageValues() (n, bytes int) { return len(w.c.images.at), w.c.images.size }
