// Package mlflow writes runs where MLflow shows them: into the folders of its file store, or to a tracking server over
// its REST API. MLflow has no client for Go; what runs need of one is five calls.
package mlflow
