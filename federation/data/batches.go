package data

// Tail says what becomes of a last batch that is not full.
type Tail string

const (
	KeepTail   Tail = "keep"             // train on it (PyTorch's default)
	DropTail   Tail = "drop"             // leave it out, also when it is the only one (PyTorch's drop_last)
	DropIfFull Tail = "drop-unless-only" // leave it out when there is a full batch (FedPHA's and CoOp's loaders)
)

// Batches cuts a random permutation of 0..n-1, a function of the seed, into batches. A batch size of 0 or less, or above
// n, is one batch of all. Every index occurs once, except those in a tail that is dropped.
func Batches(n, batch int, seed uint64, tail Tail) [][]int {
	if n <= 0 {
		return nil
	}
	if batch <= 0 {
		batch = n
	}
	order := stream(seed, "batches").Perm(n)
	var out [][]int
	for len(order) >= batch {
		out = append(out, order[:batch:batch])
		order = order[batch:]
	}
	if len(order) > 0 && (tail == KeepTail || tail == "" || tail == DropIfFull && len(out) == 0) {
		out = append(out, order)
	}
	return out
}
