// Package simtime simulates how long the training of clients takes, so that slow clients can be late and servers need
// not wait: rounds with a deadline, and FedBuff (Nguyen et al., AISTATS 2022, Algorithm 1). It is a layer between the
// server and its clients; the round loop knows nothing of it. Simulated time is counted in seconds from the start of
// the run, and is a function of the plan alone, whatever the machine and the number of workers.
package simtime
