// Package chaos holds tests that run promptfed serve and join, or run --cluster and work, as processes, disturb them
// and the network between them, and compare the result with that of an undisturbed run. TestKill kills either side just
// before and just after each kind of message, which a relay passes on.
//
// TestChaos draws a schedule of faults from a seed: kills, pauses (clocks jump), full disks, partitions, cut, stalled
// and slow connections, and replays of recorded ones. Besides, bytes are changed, and bytes and messages are repeated
// or late. The seed repeats the schedule, not how processes interleave.
//
// `go test` runs three short schedules. PROMPTFED_TEST_CHAOS_RUNS=20 runs twenty long ones (`make chaos`), and
// PROMPTFED_TEST_CHAOS_SEED=7 makes 7 the first seed. PROMPTFED_TEST_CHAOS_NETNS=1, as root, puts the clients into a
// network namespace whose link is cut and, if the kernel has netem, slow and lossy.
package chaos
