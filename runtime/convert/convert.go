// Package convert holds what the slices package of the standard library lacks. It imports nothing of this module.
package convert

// Slice returns the results of f for the elements of a list, in their order. They are as many as the elements.
func Slice[T, R any](list []T, f func(T) R) []R {
	out := make([]R, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}
