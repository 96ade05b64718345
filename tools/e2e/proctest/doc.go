// Package proctest holds helpers for tests that start promptfed: building of programs, processes and their output. Only
// tests in tools/e2e import it.
package proctest
