package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Ways of cleaning texts before a tokenizer, with OpenCLIP's names. All begin with the repair and the decoding of HTML
// entities in Clean.
const (
	Lower        = "lower"        // Clean: white space collapsed, lower case
	Whitespace   = "whitespace"   // white space collapsed
	Canonicalize = "canonicalize" // "_" becomes a space, no ASCII punctuation, lower case, white space collapsed
)

var cleanings = []string{Lower, Whitespace, Canonicalize}

// TextCleaning describes the treatment of texts before and after a tokenizer. The zero value adds nothing to the
// tokenizer's own steps. The names of the options are those of SimpleTokenizer and HFTokenizer of OpenCLIP 3.3.0.
type TextCleaning struct {
	Clean    string `json:"clean,omitempty"`           // Lower, Whitespace or Canonicalize; empty: the tokenizer's own
	StripSep bool   `json:"strip_sep_token,omitempty"` // the separator becomes token 0 everywhere
	Sep      string `json:"sep_token,omitempty"`       // the separator; empty: the one that WithCleaning finds
}

// Check returns an error if the treatment is invalid.
func (x TextCleaning) Check() error {
	switch {
	case x.Clean != "" && !slices.Contains(cleanings, x.Clean):
		return fmt.Errorf("clean is %s, must be one of %v", quote(x.Clean), cleanings)
	case x.Sep != "" && !x.StripSep:
		return fmt.Errorf("sep_token is %s without strip_sep_token: true, which alone uses it", quote(x.Sep))
	}
	return nil
}

// String describes the treatment in a few words; it is empty for the zero value.
func (x TextCleaning) String() string {
	var parts []string
	if x.Clean != "" {
		parts = append(parts, "cleaned: "+x.Clean)
	}

	if x.StripSep {
		parts = append(parts, strings.TrimSpace("token 0 for the separator "+x.Sep))
	}

	return strings.Join(parts, ", ")
}

// WithCleaning returns the tokenizer with another treatment. Encode cleans texts accordingly, and the separator
// becomes token 0 wherever it would occur: at the end of texts (then EOT is 0), where a text spells it out, and as
// padding. Write stores the same file.
//
// The separator is transformers' sep_token: that of cleaning, else that of tokenizer_config.json beside the file, else
// the sep of a BertProcessing or RobertaProcessing, else a token [SEP] that ends texts, which is the default of
// transformers' BERT classes. In all other files, such as T5's and Gemma's, the token that ends texts is not a
// sep_token of transformers, and StripSep is refused, as for CLIP's own tokenizer. OpenCLIP itself fails if
// transformers has no sep_token.
//
// CLIP's own tokenizer cleans texts as Lower does unless cleaning says otherwise. It is OpenCLIP's SimpleTokenizer,
// except for special tokens that are spelled out in the text, which OpenCLIP calls <start_of_text> and <end_of_text>.
func (t *Tokenizer) WithCleaning(cleaning TextCleaning) (*Tokenizer, error) {
	if err := cleaning.Check(); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}

	out := *t
	if out.treatment = cleaning; !cleaning.StripSep {
		return &out, nil
	}

	out.strip = t.sep
	if cleaning.Sep != "" {
		out.strip = t.find(cleaning.Sep)
	}

	switch {
	case t.clip:
		return nil, errors.New("tokenizer: strip_sep_token: CLIP's own tokenizer has no separator; leave it out")
	case out.strip < 0 && cleaning.Sep != "":
		return nil, fmt.Errorf("tokenizer: sep_token %s is not in the vocabulary", quote(cleaning.Sep))
	case out.strip < 0:
		return nil, fmt.Errorf("tokenizer: strip_sep_token: nothing says which token is the separator; name it as "+
			"sep_token in %s beside the tokenizer", ConfigName)
	}

	out.treatment.Sep = t.tokens[out.strip]
	return &out, nil
}

// Cleaning returns the tokenizer's treatment, with the name of the separator if it is stripped.
func (t *Tokenizer) Cleaning() TextCleaning { return t.treatment }

// clean cleans a text for Encode.
func (t *Tokenizer) clean(text string) string {
	switch x := t.treatment.Clean; {
	case x == Canonicalize:
		return canonical(text)
	case x == Whitespace:
		return collapsed(basic(text))
	case x == Lower:
		return Clean(text)
	}

	return text
}

// shown returns the id that replaces an id: 0 for a stripped separator.
func (t *Tokenizer) shown(id int) int {
	if t.treatment.StripSep && id == t.strip {
		return 0
	}
	return id
}

// find returns the id of a token, or -1.
func (t *Tokenizer) find(token string) int {
	if id, ok := t.ids[token]; ok {
		return id
	}
	return -1
}
