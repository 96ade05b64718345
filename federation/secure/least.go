package secure

// Least is how many uploads there are in every sum that the server learns of a round that asks so many clients.
func (l *Layer) Least(clients int) int { return l.threshold(clients) }
