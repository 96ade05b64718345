// Package allocation holds the code that partitions by our own rules and by public code share: lists of examples, the
// clients' shares of them, and common steps. It may import federation/data, but no random generators of Python.
package allocation
