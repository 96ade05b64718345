// Package mlflow writes runs to MLflow: into the folders of its file store, or to a tracking server over its REST API.
// MLflow has no Go client, and runs need only five calls.
package mlflow
