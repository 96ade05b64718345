package tensor

import "slices"

// Indices returns the numbers from 0 to n-1.
func Indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Order returns the numbers from 0 to n-1 as compare sorts them; equal ones keep their order.
func Order(n int, compare func(a, b int) int) []int {
	out := Indices(n)
	slices.SortStableFunc(out, compare)
	return out
}
