// Package pyrand reproduces Python's random numbers bit for bit: random.Random of CPython and the legacy RandomState of
// NumPy. Data splits of published code can therefore be repeated from their seeds. It imports runtime/tensor
// only.
//
// Both are based on the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998). A generator is not safe for
// concurrent use.
package pyrand
