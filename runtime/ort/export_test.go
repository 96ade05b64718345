package ort

// OnDevice gives options whose sessions treat the CPU as a device that weights are copied to.
func (o Options) OnDevice() Options {
	o.upload = true
	return o
}

// Uploaded counts the weights that lie on devices.
func Uploaded() (n int) {
	containers.Lock()
	defer containers.Unlock()
	for _, c := range containers.of {
		n += len(c.values)
	}
	return n
}

// Pick starts so many runs that end together, and gives their devices.
func (s *Session) Pick(runs int) (devices []int) {
	for range runs {
		r, done := s.pick()
		defer done()
		devices = append(devices, r.device)
	}
	return devices
}
