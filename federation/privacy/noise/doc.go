// Package noise draws the noise of differential privacy from a secret key, and records the releases of each round. It
// imports no engine.
package noise
