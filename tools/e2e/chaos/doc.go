// Package chaos holds tests that run promptfed serve and join as processes, disturb them and the network between them
// as often as possible, and compare the result with that of an undisturbed run. TestKill kills either side just before
// and just after each kind of message, which a relay passes on.
// `go test` runs the short form of TestChaos. PROMPTFED_TEST_CHAOS_RUNS=20 runs the long form twenty times
// (`make chaos`), and PROMPTFED_TEST_CHAOS_SEED=7 makes 7 the first seed. PROMPTFED_TEST_CHAOS_NETNS=1, as root, puts
// the clients into a network namespace whose link is cut and, if the kernel has netem, slow and lossy.
package chaos
