package layer

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// File is an option that names a file. Whoever reads a configuration replaces the path by the file's name and content
// (EmbedFile): a method reads no files, and a configuration that travels brings them.
type File string

// MaxFile is the size of the largest file that a configuration may hold, in bytes.
const MaxFile = 1 << 20

// maxFileName bounds a file's name, in bytes.
const maxFileName = 200

const (
	dataURL    = "data:application/octet-stream;name="
	dataBase64 = ";base64,"
)

var fileName = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// EmbedFile returns a File that holds a content, as a data URL (RFC 2397), with the last maxFileName bytes of its name.
func EmbedFile(name string, content []byte) File {
	name = fileName.ReplaceAllString(name, "_")
	name = name[max(0, len(name)-maxFileName):]
	return File(dataURL + name + dataBase64 + base64.StdEncoding.EncodeToString(content))
}

// Embedded reports whether f holds its content.
func (f File) Embedded() bool { return strings.HasPrefix(string(f), dataURL) }

// Content returns name and content of a file that f holds.
func (f File) Content() (name string, content []byte, err error) {
	rest, ok := strings.CutPrefix(string(f), dataURL)
	name, text, found := strings.Cut(rest, dataBase64)
	switch {
	case !ok && f == "":
		return "", nil, errors.New("empty; name a file")
	case !ok:
		return "", nil, fmt.Errorf("%.100q was not read; a configuration of another machine must hold its files",
			string(f))
	case !found || name == "" || len(name) > maxFileName || fileName.MatchString(name):
		return "", nil, errors.New("its content is not name and base64")
	case base64.StdEncoding.DecodedLen(len(text))-strings.Count(text[max(0, len(text)-2):], "=") > MaxFile:
		return "", nil, fmt.Errorf("%s has more than %d bytes", name, MaxFile)
	}

	if content, err = base64.StdEncoding.DecodeString(text); err != nil {
		return "", nil, fmt.Errorf("%s: its content is not base64", name)
	}

	return name, content, nil
}

// Digest returns the SHA-256 of a content, in hex.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// String returns a path, or name and digest of a content.
func (f File) String() string {
	name, content, err := f.Content()
	if err != nil {
		return string(f)
	}
	return name + " sha256:" + Digest(content)
}

var embedded = regexp.MustCompile(dataURL + `[A-Za-z0-9._-]+` + dataBase64 + `[A-Za-z0-9+/]*=*`)

// ShortenFiles returns a text in which files are their names and digests, for people.
func ShortenFiles(text string) string {
	return embedded.ReplaceAllStringFunc(text, func(s string) string { return File(s).String() })
}
