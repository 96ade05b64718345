// Package hub fetches CLIP models from the Hugging Face hub, and OpenAI's archives, and makes bundles of them. Files
// lie where Python's libraries keep theirs: in huggingface_hub's cache, with its layout and its locks, and in the
// folder of OpenAI's package clip. Every file is compared with its SHA-256, or its SHA-1 as a git blob. The package may
// import runtime and the other packages of models.
//
// No Go library does this: github.com/gomlx/go-huggingface 0.3.1 compares no checksums, does not resume, does not know
// HF_ENDPOINT, takes the checksum of a redirected file from the redirect's target, and prints to the standard output.
package hub
