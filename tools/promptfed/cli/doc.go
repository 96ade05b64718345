// Package cli holds what the commands of promptfed share: usage errors, results as text or JSON, loading of
// configurations, opening of experiments, and the interface to reports and experiment trackers. It may import
// federation and configs, and nothing of tools/lab.
package cli
