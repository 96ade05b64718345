// Package chaos holds tests that run promptfed serve and join as processes, break them and what is between them as
// often as they can, and compare what came out with a run that nothing happened to.
//
// TestChaos has a short form, which is what `go test` runs. PROMPTFED_CHAOS=20 runs the long form twenty times
// (`make chaos`), PROMPTFED_CHAOS_SEED=7 makes 7 the first seed, PROMPTFED_CHAOS_NETNS=1, as root, puts the clients
// into a network namespace of their own whose link is cut and, where the kernel has netem, slowed and made lossy.
package chaos
