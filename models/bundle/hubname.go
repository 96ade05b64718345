package bundle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// HubPrefix is the prefix of names of bundles that are made from model repositories of the Hugging Face hub.
const HubPrefix = "hf:"

// HubName names a model repository of the Hugging Face hub: as text hf:ORG/NAME, or hf:ORG/NAME@REVISION.
type HubName struct {
	Repository string // ORG/NAME
	Revision   string // a branch, a tag or a commit; empty for the branch main
}

var (
	repository = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)
	revision   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$`)
	wholeHash  = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ParseHubName reads a name with or without HubPrefix.
func ParseHubName(text string) (HubName, error) {
	repo, rev, pinned := strings.Cut(strings.TrimPrefix(text, HubPrefix), "@")

	// The hub allows neither two dashes nor two dots; dashes separate the parts of folders' names.
	if !repository.MatchString(repo) || strings.Contains(repo, "--") || strings.Contains(repo, "..") ||
		pinned && (len(rev) > 100 || !revision.MatchString(rev) || strings.Contains(rev, "..")) {
		return HubName{}, fmt.Errorf("%.80q names no repository of the Hugging Face hub: write %sORG/NAME or "+
			"%[2]sORG/NAME@REVISION", text, HubPrefix)
	}

	return HubName{repo, rev}, nil
}

// String returns the name with HubPrefix.
func (n HubName) String() string {
	if n.Revision == "" {
		return HubPrefix + n.Repository
	}
	return HubPrefix + n.Repository + "@" + n.Revision
}

// IsCommit reports whether a revision is a commit, which never changes.
func IsCommit(revision string) bool { return wholeHash.MatchString(revision) }

// Folder returns the name of the bundle and of its folder: ORG--NAME, or ORG--NAME@REVISION with 12 digits of a commit.
func (n HubName) Folder() string {
	if IsCommit(n.Revision) {
		n.Revision = n.Revision[:12]
	}
	return strings.ReplaceAll(strings.TrimPrefix(n.String(), HubPrefix), "/", "--")
}

// ErrNotPulled is the error of Find for a name with HubPrefix whose bundle is not on this machine.
var ErrNotPulled = errors.New("not on this machine")

// Origin is where a checkpoint was fetched from.
type Origin struct {
	Source   string `json:"source"`            // ORG/NAME of the Hugging Face hub, or OpenAI's name of an archive
	Revision string `json:"revision"`          // the commit, or the SHA-256 of the archive
	License  string `json:"license,omitempty"` // as the model card states it
}

// String returns the origin on one line.
func (o Origin) String() string {
	return fmt.Sprintf("%s at %s, licence: %s", o.Source, o.Revision,
		cmp.Or(o.License, "not stated in the model card"))
}

// OriginOf returns the origin of the bundle in a folder; ok is false if there is no bundle, or it records none.
func OriginOf(dir string) (o Origin, ok bool) {
	data, err := ReadManifest(dir)
	if err != nil {
		return o, false
	}

	var m struct {
		Origin Origin `json:"origin"`
	}
	return m.Origin, json.Unmarshal(data, &m) == nil && m.Origin.Source != ""
}
