package deploy

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	digest "github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// someImage replaces every base image by an empty Linux, so that nothing is downloaded.
type someImage struct{}

func (someImage) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte,
	error) {
	if _, version, _ := strings.Cut(ref, ":"); version == "" || version == "latest" {
		return "", "", nil, fmt.Errorf("%s is no stage, and no image with a version", ref)
	}
	config := `{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin"]}}`
	return ref, digest.FromString(ref), []byte(config), nil
}

// lint returns the findings of BuildKit about a Dockerfile: all its rules, and errors of the build.
func lint(text string) []string {
	var said []string
	_, err := dockerfile2llb.Dockerfile2LLB(context.Background(), []byte(text), dockerfile2llb.ConvertOpt{
		MetaResolver: someImage{}, AllStages: true,
		TargetPlatform: &ocispecs.Platform{OS: "linux", Architecture: "amd64"},
		Warn:           func(rule, _, _, text string, _ []parser.Range) { said = append(said, rule+": "+text) }})
	if err != nil {
		said = append(said, err.Error())
	}
	return said
}

// BuildKit has no findings about the Dockerfiles, and at least one about each broken variant.
func TestDockerfile(t *testing.T) {
	b, err := os.ReadFile(folder + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	release, err := os.ReadFile(folder + "release.Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	whole := string(b)
	for _, text := range []string{whole, string(release)} {
		if said := lint(text); said != nil {
			t.Error(strings.Join(said, "\n"))
		}
	}
	for _, c := range []struct{ from, to, says string }{
		{"RUN make", "RUNS make", "unknown instruction: RUNS"},
		{"--from=build", "--from=built", "built:latest is no stage"},
		{"COPY . .", "COPY .", "COPY requires at least two arguments"},
		{"FROM golang", "from golang", "ConsistentInstructionCasing"},
		{" AS build", " as build", "FromAsCasing"},
		{"WORKDIR /src", "WORKDIR src", "WorkdirRelativePath"},
		{`ENTRYPOINT ["/opt/promptfed/promptfed"]`, "ENTRYPOINT /opt/promptfed/promptfed", "JSONArgsRecommended"},
		{"ENV XDG_CACHE_HOME=/var", "ENV XDG_CACHE_HOME /var", "LegacyKeyValueFormat"},
		{"ENV XDG_CACHE_HOME=/var/lib", "ENV XDG_CACHE_HOME=$LIB", "UndefinedVar"},
		{"USER 65534", "USER 65534\nENV PROMPTFED_TOKEN=x", "SecretsUsedInArgOrEnv"},
	} {
		broken := strings.Replace(whole, c.from, c.to, 1)
		said := strings.Join(lint(broken), "\n")
		if broken == whole || said == "" || !strings.Contains(said, c.says) {
			t.Errorf("%q: %q, want %q", c.to, said, c.says)
		}
	}
}
