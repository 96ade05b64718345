// Package deploy holds tests of docs/deploy: the Helm chart and the Kustomize base against the types of Kubernetes, and
// the Dockerfile against BuildKit's linter. It is a separate module, so that promptfed does not require these tools.
package deploy
