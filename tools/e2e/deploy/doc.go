// Package deploy holds tests of docs/deploy: the Helm chart and the Kustomize base against the types of Kubernetes, the
// Dockerfile against BuildKit's linter. It is a module of its own: nothing of these is needed to build promptfed.
package deploy
