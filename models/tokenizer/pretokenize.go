package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// piece is a part of a text. match means that it matches a pattern; first means that the text begins with it.
type piece struct {
	text         string
	match, first bool
}

// finder splits a text into matches and the parts between them.
type finder func(string) ([]piece, error)

// pattern is {"String": text} or {"Regex": expression}.
type pattern struct {
	String *string
	Regex  *string
}

// UnmarshalJSON also accepts a plain text.
func (p *pattern) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &p.String) == nil {
		return nil
	}
	type plain pattern
	return json.Unmarshal(data, (*plain)(p))
}

// maxMatch limits the time of one search: expressions with look-ahead may take exponential time.
const maxMatch = 2 * time.Second

func (p pattern) finder() (finder, error) {
	switch {
	case p.String != nil && *p.String != "":
		return plain(*p.String), nil
	case p.Regex != nil:
		return expression(*p.Regex)
	}
	return nil, errors.New("a pattern must be {\"String\": TEXT} or {\"Regex\": EXPRESSION}")
}

// matches returns a finder of matches, which are ranges of bytes in the order of the text.
func matches(find func(s string) [][]int) finder {
	return func(s string) (out []piece, err error) {
		from := 0
		for _, m := range find(s) {
			if m[0] > from {
				out = append(out, piece{text: s[from:m[0]]})
			}
			from = m[1]
			out = append(out, piece{text: s[m[0]:from], match: true})
		}
		if from < len(s) {
			out = append(out, piece{text: s[from:]})
		}
		return out, nil
	}
}

// plain matches a text, which must not be empty. As a regular expression, it would take some 250 times its bytes.
func plain(text string) finder {
	return matches(func(s string) (found [][]int) {
		for at := 0; ; {
			i := strings.Index(s[at:], text)
			if i < 0 {
				return found
			}
			found = append(found, []int{at + i, at + i + len(text)})
			at += i + len(text)
		}
	})
}

// clipWords splits cleaned text with the pattern that OpenAI published into special tokens, English contractions, runs
// of letters, single number characters, and runs of other characters. Only special tokens and contractions ignore case:
// case folding would treat some non-letters as letters. After Clean, plain spaces are the only white space.
var clipWords = func() finder {
	re := regexp.MustCompile(`(?i:<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d)` +
		`|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+`)
	return matches(func(s string) [][]int { return re.FindAllStringIndex(s, -1) })
}()

func expression(text string) (finder, error) {
	if len(text) > 4096 {
		return nil, fmt.Errorf("a regular expression of %d bytes is too long", len(text))
	}

	re, err := regexp2.Compile(text, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("regular expression %s is not supported: %w", quote(text), err)
	}

	re.MatchTimeout = maxMatch
	return func(input string) ([]piece, error) {
		runes := []rune(input)
		var found [][]int
		from, at := 0, 0 // in runes and bytes
		m, err := re.FindRunesMatch(runes)
		for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
			at += len(string(runes[from:m.Index]))
			found = append(found, []int{at, at + len(m.String())})
			from, at = m.Index+m.Length, at+len(m.String())
		}
		if err != nil {
			return nil, fmt.Errorf("regular expression %s: %w", quote(text), err)
		}
		return matches(func(string) [][]int { return found })(input)
	}, nil
}

// single matches every single character that f accepts.
func single(f func(rune) bool) finder {
	return matches(func(s string) (found [][]int) {
		for i, r := range s {
			if f(r) {
				found = append(found, []int{i, i + utf8.RuneLen(r)})
			}
		}
		return found
	})
}

// runs matches runs of characters of one class; class 0 does not match.
func runs(class func(rune) int) finder {
	return func(input string) ([]piece, error) {
		var out []piece
		from, last := 0, -1
		for i, r := range input {
			if c := class(r); c != last {
				if i > 0 {
					out = append(out, piece{text: input[from:i], match: last > 0})
				}
				from, last = i, c
			}
		}
		return append(out, piece{text: input[from:], match: last > 0}), nil
	}
}

// behaviors decides, by its names in tokenizer.json, which pieces are joined to the pieces before them. before and here
// say whether the two pieces are matches.
var behaviors = map[string]func(before, here bool) bool{
	"Isolated":           func(before, here bool) bool { return false },
	"Removed":            func(before, here bool) bool { return false },
	"Contiguous":         func(before, here bool) bool { return before == here },
	"MergedWithPrevious": func(before, here bool) bool { return here && !before },
	"MergedWithNext":     func(before, here bool) bool { return before && !here },
}

// preTokenizer splits pieces into smaller ones.
type preTokenizer func([]piece) ([]piece, error)

// cut splits every piece with a finder; it drops empty pieces.
func cut(find finder, behavior string, invert bool) (preTokenizer, error) {
	joins := behaviors[behavior]
	if joins == nil {
		return nil, fmt.Errorf("pre_tokenizer: behavior %.40q is not known", behavior)
	}

	return func(in []piece) (out []piece, err error) {
		for _, whole := range in {
			parts, err := find(whole.text)
			if err != nil {
				return nil, err
			}

			for at := 0; at < len(parts); {
				end := at + 1
				for end < len(parts) && joins(parts[end-1].match != invert, parts[end].match != invert) {
					end++
				}
				var text strings.Builder
				for _, q := range parts[at:end] {
					text.WriteString(q.text)
				}
				if removed := behavior == "Removed" && parts[at].match != invert; !removed && text.Len() > 0 {
					out = append(out, piece{text: text.String(), first: whole.first && at == 0})
				}
				at = end
			}
		}

		return out, nil
	}, nil
}

// gpt2 is the pattern of Radford et al. 2019: contractions, and words, numbers and other characters with an optional
// leading space.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

func readPreTokenizer(data json.RawMessage, depth int) (preTokenizer, error) {
	component, err := read("pre_tokenizer", data, depth)
	if err != nil {
		return nil, err
	}

	space := single(unicode.IsSpace)
	switch component.Type {
	case "":
		return func(in []piece) ([]piece, error) { return in, nil }, nil
	case "Sequence":
		return sequence(component.PreSteps, depth)
	case "WhitespaceSplit":
		return cut(space, "Removed", false)
	case "Whitespace":
		return cut(runs(func(r rune) int {
			switch {
			case isWord(r):
				return 1
			case !unicode.IsSpace(r):
				return 2
			}
			return 0
		}), "Removed", true)
	case "BertPreTokenizer":
		spaces, _ := cut(space, "Removed", false)
		marks, _ := cut(single(isPunct), "Isolated", false)
		return chain(spaces, marks), nil
	case "Punctuation":
		return cut(single(isPunct), cmp.Or(component.Behavior, "Isolated"), false)
	case "Digits":
		if component.Individual {
			return cut(single(unicode.IsNumber), "Isolated", false)
		}
		return cut(single(unicode.IsNumber), "Contiguous", false)
	case "CharDelimiterSplit":
		if component.Delimiter == "" {
			return nil, errors.New("pre_tokenizer CharDelimiterSplit has no delimiter")
		}
		return cut(plain(component.Delimiter), "Removed", false)
	case "Split":
		find, err := component.Pattern.finder()
		if err != nil {
			return nil, err
		}
		return cut(find, component.Behavior, component.Invert)
	case "ByteLevel":
		return component.byteLevel()
	case "Metaspace":
		return component.metaspace()
	}

	return nil, fmt.Errorf("pre_tokenizer %.40q is not supported", component.Type)
}

func sequence(list []json.RawMessage, depth int) (preTokenizer, error) {
	var steps []preTokenizer
	for i, part := range list {
		step, err := readPreTokenizer(part, depth+1)
		if err != nil {
			return nil, err
		}
		if c, _ := read("pre_tokenizer", part, depth); i > 0 && c.PrependScheme != nil && *c.PrependScheme == "first" {
			return nil, errors.New("pre_tokenizer Metaspace with prepend_scheme first must come before all other ones")
		}
		steps = append(steps, step)
	}

	return chain(steps...), nil
}

func chain(steps ...preTokenizer) preTokenizer {
	return func(in []piece) (out []piece, err error) {
		for _, step := range steps {
			if in, err = step(in); err != nil {
				return nil, err
			}
		}
		return in, nil
	}
}

// each changes the text of every piece.
func each(f func(p piece) string) preTokenizer {
	return func(in []piece) ([]piece, error) {
		for i, p := range in {
			in[i].text = f(p)
		}
		return in, nil
	}
}

func (c component) byteLevel() (preTokenizer, error) {
	steps := []preTokenizer{each(func(p piece) string {
		if orTrue(c.AddPrefixSpace) && !strings.HasPrefix(p.text, " ") {
			return " " + p.text
		}
		return p.text
	})}

	if orTrue(c.UseRegex) {
		find, err := expression(gpt2)
		if err != nil {
			return nil, err
		}
		words, _ := cut(find, "Isolated", false)
		steps = append(steps, words)
	}

	return chain(append(steps, each(func(p piece) string { return visible(p.text) }))...), nil
}

func (c component) metaspace() (preTokenizer, error) {
	mark, scheme := c.Replacement, "always"
	switch {
	case c.PrependScheme != nil:
		scheme = *c.PrependScheme
	case !orTrue(c.AddPrefixSpace):
		scheme = "never"
	}

	if len([]rune(mark)) != 1 || scheme != "always" && scheme != "first" && scheme != "never" {
		return nil, fmt.Errorf("pre_tokenizer Metaspace: replacement %.40q must be one character and prepend_scheme "+
			"%.40q always, first or never", mark, scheme)
	}

	steps := []preTokenizer{each(func(p piece) string {
		text := strings.ReplaceAll(p.text, " ", mark)
		if scheme != "never" && (scheme == "always" || p.first) && !strings.HasPrefix(text, mark) {
			text = mark + text
		}
		return text
	})}

	if orTrue(c.Split) {
		words, err := cut(plain(mark), "MergedWithNext", false)
		if err != nil {
			return nil, err
		}
		steps = append(steps, words)
	}

	return chain(steps...), nil
}
