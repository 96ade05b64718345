// Package metrics defines every number that runs are judged by, once: its name, unit and bounds, the sufficient
// statistics that clients send for it, how these merge, and how it is read of a round. It may import federation/method
// and the tensors of the runtime, and nothing else of the federation.
package metrics
