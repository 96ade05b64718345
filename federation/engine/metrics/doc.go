// Package metrics names the quantities that runs are judged by, and computes accuracy, macro-F1, calibration (ECE) and
// confusion matrices from class scores and labels, as counts that clients can send and a server can add up.
package metrics
