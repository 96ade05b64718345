// Package noise draws the noise of differential privacy from a key that nobody else knows.
package noise
