// Package attack defines the malicious clients of a simulation. They change their own labels or images before they
// train, or their uploads afterwards. They cannot reach the data of others, or the server. It imports data and method.
package attack
