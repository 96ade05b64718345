package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"unicode"
)

// strange are words that the field does not use, and what it says instead. Exported names, and the keys of
// configurations, may not have them.
var strange = map[string]string{
	"carrier": "base method", "survey": "statistic", "digest of answers": "aggregate", "peer": "client",
	"exam": "evaluation set",
	"hits": "correct, accuracy", "footing": "compatibility", "sift": "drop invalid updates", "suspicious": "rejection",
	"pace": "overrides", "elsewhere": "remote", "answerer": "executor", "hub": "server", "agent": "client",
	"gate": "permissions", "vault": "store", "crew": "workers", "errand": "job", "graft": "inline",
	"thin": "externalise", "thinner": "externalise", "lowered": "decomposition", "port": "value info",
	"deferred": "placeholder", "kinks": "non-smooth points", "joint": "embedding dimension", "pour": "convert",
	"drawn": "synthetic", "settle": "what is settled", "floors": "layers", "rooms": "packages", "arrows": "rules",
}

// Words finds exported names, and keys of configurations, with a word that the field does not use.
func Words(file string, source []byte) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var bad []string
	check := func(at token.Pos, name string, words []string) {
		for _, w := range words {
			if say := strange[w]; say != "" {
				bad = append(bad, fmt.Sprintf("%s: %s: the field's word for %s is %s", set.Position(at), name, w, say))
			}
		}
	}
	name := func(id *ast.Ident) {
		if id.IsExported() {
			check(id.Pos(), id.Name, camel(id.Name))
		}
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name(d.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, id := range s.Names {
						name(id)
					}
				case *ast.TypeSpec:
					name(s.Name)
					ast.Inspect(s.Type, func(n ast.Node) bool {
						f, ok := n.(*ast.Field)
						if !ok {
							return true
						}
						for _, id := range f.Names {
							name(id)
						}
						if f.Tag != nil {
							_, rest, _ := strings.Cut(f.Tag.Value, `config:"`)
							key, _, _ := strings.Cut(rest, `"`)
							check(f.Tag.Pos(), key, strings.FieldsFunc(key, func(r rune) bool {
								return r == '_' ||
									r == ','
							}))
						}
						return true
					})
				}
			}
		}
	}
	return bad, nil
}

// camel splits a name at its capitals, into words of small letters: NewHubOf is new, hub, of.
func camel(name string) []string {
	var words []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) && (unicode.IsLower(runes[i-1]) ||
			i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			words = append(words, strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
	return words
}
