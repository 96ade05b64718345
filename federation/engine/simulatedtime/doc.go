// Package simulatedtime simulates how long clients train: rounds with a deadline, in which slow clients are late, and
// FedBuff (Nguyen et al., AISTATS 2022, Algorithm 1), in which the server does not wait. It wraps the server's Cohort;
// the round loop does not depend on it. Simulated time is in seconds since the start of the run. It depends on the plan
// alone, whatever the machine and the number of workers.
package simulatedtime
