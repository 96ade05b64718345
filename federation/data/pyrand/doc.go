// Package pyrand implements the random generators of Python, bit for bit: random.Random of CPython and the legacy
// RandomState of NumPy, so that a data split of published code can be reproduced from its seed. It imports no other
// package of the project.
//
// Both generators are based on the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998). A generator is not safe
// for concurrent use.
package pyrand
