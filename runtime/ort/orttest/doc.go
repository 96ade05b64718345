// Package orttest holds helpers for tests that run models: golden tensors, runs, comparisons, what a GPU cannot run,
// and checks of errors and files.
package orttest
