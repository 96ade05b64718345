package client

// InitialValues returns the number of forward passes that a worker remembers, all at prompts from the server.
func (w *Worker) InitialValues() int { return len(w.compiler.initial.at) }

// DropClassFeatures evicts all values of a worker's tests other than class scores.
func (w *Worker) DropClassFeatures() {
	for w.compiler.values.used.Len() > 0 {
		w.compiler.values.dropLast()
	}
}

// ClassFeatures returns how many values of tests other than class scores a worker keeps.
func (w *Worker) ClassFeatures() int { return len(w.compiler.values.at) }

// CheckBatch and Products are for tests in client_test.
var CheckBatch, Products = checkBatch, products

// ImageParts sets how many products must be saved for each number (see leastProducts) and how many bytes of values of
// images are kept. ImageValues returns their number and size.
func (w *Worker) ImageParts(least float64, bytes int) {
	w.compiler.leastProducts, w.compiler.images.capacity = least, bytes
}
func (w *Worker) ImageValues() (n, bytes int) {
	return len(w.compiler.images.at), w.compiler.images.size
}
