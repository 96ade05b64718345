package ort

func (o Options) Spins() bool { return o.spins() }

func Uploaded() int { return count(func(c *container) int { return len(c.values) }) }

// Packed counts the matrices that are packed for the operator Product.
func Packed() int { return count(func(c *container) int { return len(c.memory) }) }

func count(of func(*container) int) (n int) {
	containers.Lock()
	defer containers.Unlock()
	for _, c := range containers.of {
		n += of(c)
	}
	return n
}

func (v *Value) Copies() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.at)
}

// Pick starts runs that end together, and returns their devices.
func (s *Session) Pick(runs int) (devices []int) {
	for range runs {
		r, done := s.pick()
		defer done()
		devices = append(devices, r.device)
	}
	return devices
}
