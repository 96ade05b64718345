// Package runfolder names the files of a run folder, claims the folder for one program at a time, and records the
// provenance of the run. It may import federation and configs, and nothing of tools/lab, which reads run folders.
package runfolder
