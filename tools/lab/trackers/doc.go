// Package trackers sends the rounds of a run to other programs during the run: TensorBoard and MLflow.
package trackers
