package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer changes a text before it is split; nil changes nothing.
type normalizer func(string) (string, error)

// component is one step of a tokenizer.json: its type and the fields of all types.
type component struct {
	Type     string            `json:"type"`
	Steps    []json.RawMessage `json:"normalizers"`
	PreSteps []json.RawMessage `json:"pretokenizers"`
	Post     []json.RawMessage `json:"processors"`
	Pattern  pattern           `json:"pattern"`
	Content  string            `json:"content"`
	Prepend  string            `json:"prepend"`
	Charsmap []byte            `json:"precompiled_charsmap"`
	Left     *bool             `json:"strip_left"`
	Right    *bool             `json:"strip_right"`

	CleanText    *bool `json:"clean_text"`
	Chinese      *bool `json:"handle_chinese_chars"`
	StripAccents *bool `json:"strip_accents"`
	Lowercase    *bool `json:"lowercase"`

	Behavior       string  `json:"behavior"`
	Invert         bool    `json:"invert"`
	AddPrefixSpace *bool   `json:"add_prefix_space"`
	UseRegex       *bool   `json:"use_regex"`
	Replacement    string  `json:"replacement"`
	PrependScheme  *string `json:"prepend_scheme"`
	Split          *bool   `json:"split"`
	Individual     bool    `json:"individual_digits"`
	Delimiter      string  `json:"delimiter"`

	Single  []map[string]templateItem  `json:"single"`
	Special map[string]templateSpecial `json:"special_tokens"`
	Sep     *templateToken             `json:"sep"`
	Cls     *templateToken             `json:"cls"`
}

// maxDepth limits the nesting of sequences, maxSteps the steps of each.
const maxDepth, maxSteps = 8, 64

// read decodes a component; kind names it in errors. A missing component is the zero value.
func read(kind string, data json.RawMessage, depth int) (component component, err error) {
	if len(data) == 0 || string(data) == "null" {
		return component, nil
	}

	if err := json.Unmarshal(data, &component); err != nil {
		return component, fmt.Errorf("%s: %w", kind, err)
	}

	if depth > maxDepth || len(component.Steps)+len(component.PreSteps)+len(component.Post) > maxSteps {
		return component, fmt.Errorf("%s: sequences nest more than %d deep or have more than %d steps", kind, maxDepth,
			maxSteps)
	}

	if component.Type == "" {
		return component, fmt.Errorf("%s has no type", kind)
	}

	return component, nil
}

func orTrue(b *bool) bool { return b == nil || *b }

func readNormalizer(data json.RawMessage, depth int) (normalizer, error) {
	component, err := read("normalizer", data, depth)
	if err != nil {
		return nil, err
	}

	whole := func(f func(string) string) (normalizer, error) {
		return func(s string) (string, error) { return f(s), nil }, nil
	}
	each := func(f func(r rune) string) (normalizer, error) {
		return whole(func(s string) string { return mapped(s, f) })
	}
	forms := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}
	if form, ok := forms[component.Type]; ok {
		return whole(form.String)
	}

	switch component.Type {
	case "":
		return nil, nil
	case "Sequence":
		var steps []normalizer
		for _, part := range component.Steps {
			step, err := readNormalizer(part, depth+1)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
		return func(s string) (string, error) {
			for _, step := range steps {
				if s, err = step.apply(s); err != nil {
					return "", err
				}
			}
			return s, nil
		}, nil
	case "Lowercase":
		return each(lower)
	case "StripAccents":
		return each(func(r rune) string { return unless(unicode.IsMark(r), r) })
	case "Nmt":
		return each(nmt)
	case "ByteLevel":
		return whole(visible)
	case "Prepend":
		return whole(func(s string) string {
			if s != "" {
				s = component.Prepend + s
			}
			return s
		})
	case "Strip":
		return whole(func(s string) string {
			if orTrue(component.Left) {
				s = strings.TrimLeftFunc(s, unicode.IsSpace)
			}
			if orTrue(component.Right) {
				s = strings.TrimRightFunc(s, unicode.IsSpace)
			}
			return s
		})
	case "Replace":
		find, err := component.Pattern.finder()
		if err != nil {
			return nil, err
		}
		return func(s string) (string, error) {
			parts, err := find(s)
			if err != nil {
				return "", err
			}

			var out strings.Builder
			for _, p := range parts {
				if p.match {
					out.WriteString(component.Content)
				} else {
					out.WriteString(p.text)
				}
				if out.Len() > maxGrown {
					return "", fmt.Errorf("replacing makes more than %d bytes of it", maxGrown)
				}
			}

			return out.String(), nil
		}, nil
	case "Precompiled":
		m, err := readCharsmap(component.Charsmap)
		if err != nil {
			return nil, fmt.Errorf("normalizer Precompiled: %w", err)
		}
		return whole(m.normalize)
	case "BertNormalizer":
		return whole(component.bert())
	}

	return nil, fmt.Errorf("normalizer %.40q is not supported", component.Type)
}

func (n normalizer) apply(s string) (string, error) {
	if n == nil {
		return s, nil
	}

	s, err := n(s)
	if err == nil && len(s) > maxGrown {
		err = fmt.Errorf("the normalizer makes more than %d bytes of it", maxGrown)
	}

	return s, err
}

// maxGrown limits the output of normalizers, in bytes.
const maxGrown = 8 * maxText

func mapped(s string, f func(r rune) string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteString(f(r))
	}
	return b.String()
}

func unless(drop bool, r rune) string {
	if drop {
		return ""
	}
	return string(r)
}

// bert is Devlin et al.'s basic tokenizer without the splitting: it removes control characters, makes white space
// plain, separates Chinese characters, and removes accents and capitals. Unless the file says otherwise, accents are
// removed with lower case.
func (c component) bert() func(string) string {
	accents := orTrue(c.Lowercase)
	if c.StripAccents != nil {
		accents = *c.StripAccents
	}

	return func(text string) string {
		if orTrue(c.CleanText) {
			text = mapped(text, func(r rune) string {
				switch {
				case r == 0 || r == 0xfffd || isOther(r):
					return ""
				case unicode.IsSpace(r):
					return " "
				}
				return string(r)
			})
		}

		if orTrue(c.Chinese) {
			text = mapped(text, func(r rune) string {
				if isIdeograph(r) {
					return " " + string(r) + " "
				}
				return string(r)
			})
		}

		if accents {
			text = mapped(norm.NFD.String(text), func(r rune) string { return unless(unicode.Is(unicode.Mn, r), r) })
		}

		if orTrue(c.Lowercase) {
			text = mapped(text, lower)
		}

		return text
	}
}

// nmt is SentencePiece's rule for control characters and white space.
func nmt(r rune) string {
	switch {
	case r >= 1 && r <= 8, r == 0xb, r >= 0xe && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
		return ""
	case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f, r == 0x2028, r == 0x2029,
		r == 0x2581, r == 0xfeff, r == 0xfffd:
		return " "
	}

	return string(r)
}

// visible writes every byte as its character in alphabet.
func visible(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(alphabet[s[i]])
	}
	return b.String()
}
