// Package cli holds what the commands of promptfed share: usage errors, loading of configurations, opening of
// experiments, and the interface to reports and experiment trackers. It may import federation and configs, and nothing
// of tools/lab.
package cli
