package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/models/bundle"
)

// known lists repositories that have a short name: what follows the slash.
var known = []string{"openai/clip-vit-base-patch32", "openai/clip-vit-base-patch16", "openai/clip-vit-large-patch14",
	"openai/clip-vit-large-patch14-336", "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
	"laion/CLIP-ViT-B-16-laion2B-s34B-b88K", "laion/CLIP-ViT-L-14-laion2B-s32B-b82K"}

// archives are OpenAI's own files, with their SHA-256, which is a part of their address (clip.py of
// github.com/openai/CLIP).
var archives = map[string]string{
	"RN50":     "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762",
	"RN101":    "8fa8567bab74a42d41c5915025a8e4538c3bdbe8804a470a72f30b0d94fab599",
	"ViT-B/32": "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af",
	"ViT-B/16": "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f",
}

// archiveLicense is that of github.com/openai/CLIP.
const archiveLicense = "mit"

// vocabulary is the repository whose vocabulary OpenAI's archives have.
var vocabulary = bundle.HubName{Repository: "openai/clip-vit-base-patch32"}

// Names returns the names that Parse accepts besides those of repositories.
func Names() []string {
	var out []string
	for _, r := range known {
		_, name, _ := strings.Cut(r, "/")
		out = append(out, name)
	}
	return append(out, slices.Sorted(maps.Keys(archives))...)
}

// Model is what Pull fetches: a repository, or one of OpenAI's archives.
type Model struct {
	bundle.HubName
	archive string // "" for a repository
}

// Parse reads the name of a model: a short name, the name of an archive, or ORG/NAME, with or without hf: before it and
// @REVISION after it.
func Parse(text string) (Model, error) {
	if archives[text] != "" {
		return Model{archive: text}, nil
	}

	name, rev, pinned := strings.Cut(strings.TrimPrefix(text, bundle.HubPrefix), "@")
	for _, r := range known {
		if _, short, _ := strings.Cut(r, "/"); strings.EqualFold(short, name) {
			if text = r; pinned {
				text += "@" + rev
			}
		}
	}

	h, err := bundle.ParseHubName(text)
	if err != nil {
		err = fmt.Errorf("%w, or one of %s", err, strings.Join(Names(), ", "))
	}

	return Model{HubName: h}, err
}

// Folder returns the name of the bundle and of its folder.
func (m Model) Folder() string {
	if m.archive != "" {
		return strings.ReplaceAll(m.archive, "/", "-")
	}
	return m.HubName.Folder()
}

// Backbone returns what names the model under backbones in a configuration.
func (m Model) Backbone() string {
	if m.archive != "" {
		return m.Folder()
	}
	return m.HubName.String()
}
