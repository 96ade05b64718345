// Package busytest holds what tests need to pass on a machine that is busy with other work: waiting for a condition
// without a limit of its own, contexts that end only if a test hangs, and addresses that nobody else gets. It imports
// nothing of this module, and only tests import it.
package busytest
