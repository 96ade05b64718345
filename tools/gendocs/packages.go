package main

import (
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// layers from the highest to the lowest, in the order of the documents.
var layers = []string{"tools", "configs", "federation", "models", "runtime"}

// pack is a package and the first sentence of its comment.
type pack struct{ path, says string }

// packages returns the packages of all layers. A package without a comment is an error.
func packages(root string) ([]pack, error) {
	var out []pack
	for _, layer := range layers {
		err := filepath.WalkDir(filepath.Join(root, layer), func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if n := d.Name(); n == "testdata" || strings.HasPrefix(n, ".") || strings.HasPrefix(n, "_") {
				return filepath.SkipDir
			}
			says, isPackage, err := comment(dir)
			if err != nil || !isPackage {
				return err
			}
			rel, err := filepath.Rel(root, dir)
			if says == "" && err == nil {
				err = fmt.Errorf("%s: no file has a package comment; say in it what the package is", rel)
			}
			out = append(out, pack{filepath.ToSlash(rel), says})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// comment returns the first sentence of the comment of the package in dir.
func comment(dir string) (says string, isPackage bool, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", false, err
	}
	for _, e := range list {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil,
			parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return "", true, err
		}
		isPackage = true
		if f.Doc != nil && says == "" {
			says = sentence(f.Doc.Text())
		}
	}
	return strings.TrimSuffix(says, ":"), isPackage, nil
}

// abbreviation matches abbreviations whose full stop does not end a sentence, but does for go/doc.
var abbreviation = regexp.MustCompile(`\b(et al|Eq|Eqs|Fig)\.\s`)

// sentence returns the first sentence of a comment.
func sentence(text string) string {
	const stop = "\x00 "
	text = abbreviation.ReplaceAllString(text, "$1"+stop)
	return strings.ReplaceAll(new(doc.Package).Synopsis(text), strings.TrimSpace(stop), ".")
}
