// Package protocol defines the messages of a run: signed JSON headers with encoded tensors behind them, and the limits
// of every message. It imports engine/message, certs and subjects.
package protocol
