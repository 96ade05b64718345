package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Ways of cleaning texts in front of a tokenizer, by OpenCLIP's names. All begin with the repair, and the HTML entities
// undone twice, that Clean tells of.
const (
	Lower        = "lower"        // Clean: white space collapsed, lower case
	Whitespace   = "whitespace"   // white space collapsed
	Canonicalize = "canonicalize" // "_" to a space, ASCII punctuation dropped, lower case, white space collapsed
)

var cleanings = []string{Lower, Whitespace, Canonicalize}

// Treatment is what is done to texts around a tokenizer. The zero value does nothing that is not the tokenizer's own.
// Source: SimpleTokenizer and HFTokenizer of OpenCLIP 3.3.0, whose names for the options these are.
type Treatment struct {
	Clean    string `json:"clean,omitempty"`           // Lower, Whitespace or Canonicalize; empty: the tokenizer's own
	StripSep bool   `json:"strip_sep_token,omitempty"` // the separator becomes token 0, wherever it stands
	Sep      string `json:"sep_token,omitempty"`       // the separator; empty: what With finds
}

// Check tells what is wrong with a treatment that was read.
func (x Treatment) Check() error {
	switch {
	case x.Clean != "" && !slices.Contains(cleanings, x.Clean):
		return fmt.Errorf("clean is %s, must be one of %v", quote(x.Clean), cleanings)
	case x.Sep != "" && !x.StripSep:
		return fmt.Errorf("sep_token is %s without strip_sep_token: true, which alone uses it", quote(x.Sep))
	}
	return nil
}

// String is a treatment in a few words, none for the zero value.
func (x Treatment) String() string {
	var parts []string
	if x.Clean != "" {
		parts = append(parts, "cleaned: "+x.Clean)
	}
	if x.StripSep {
		parts = append(parts, strings.TrimSpace("token 0 for the separator "+x.Sep))
	}
	return strings.Join(parts, ", ")
}

// With is the tokenizer with a treatment in place of the one that it has. Encode cleans texts by it, and the separator
// becomes token 0 wherever it would be given: at the end of texts (EOT is 0 then), written out in a text, and as what
// texts are filled up with. The file that Write stores is the same.
//
// The separator is transformers' sep_token: that of x, else that of tokenizer_config.json beside the file, else the
// sep of a BertProcessing or RobertaProcessing, else a token [SEP] that ends texts, which is the default of
// transformers' BERT classes. In all other files, as in T5's and Gemma's, the token that ends texts is no sep_token for
// transformers, and StripSep is refused. So it is with CLIP's own tokenizer. OpenCLIP itself fails where transformers
// knows no sep_token.
//
// CLIP's own tokenizer cleans texts in the way of Lower unless x says another one; it is OpenCLIP's SimpleTokenizer,
// but for the special tokens written out in a text, which OpenCLIP calls <start_of_text> and <end_of_text>.
func (t *Tokenizer) With(x Treatment) (*Tokenizer, error) {
	if err := x.Check(); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	out := *t
	if out.treatment = x; !x.StripSep {
		return &out, nil
	}
	out.strip = t.sep
	if x.Sep != "" {
		out.strip = t.find(x.Sep)
	}
	switch {
	case t.pipe == nil:
		return nil, errors.New("tokenizer: strip_sep_token: CLIP's own tokenizer has no separator; leave it out")
	case out.strip < 0 && x.Sep != "":
		return nil, fmt.Errorf("tokenizer: sep_token %s is not in the vocabulary", quote(x.Sep))
	case out.strip < 0:
		return nil, fmt.Errorf("tokenizer: strip_sep_token: nothing says which token is the separator; name it as "+
			"sep_token in %s beside the tokenizer", ConfigName)
	}
	out.treatment.Sep = t.tokens[out.strip]
	return &out, nil
}

// Treatment is what With gave the tokenizer, with the name of the separator where it is stripped.
func (t *Tokenizer) Treatment() Treatment { return t.treatment }

// clean is what Encode does to a text first.
func (t *Tokenizer) clean(text string) string {
	switch x := t.treatment.Clean; {
	case x == Canonicalize:
		return canonical(text)
	case x == Whitespace:
		return collapsed(basic(text))
	case x == Lower || t.CLIP():
		return Clean(text)
	}
	return text
}

// shown is the id that is given for one: 0 for a separator that is stripped.
func (t *Tokenizer) shown(id int) int {
	if t.treatment.StripSep && id == t.strip {
		return 0
	}
	return id
}

// find is the id of a token, -1 where there is none.
func (t *Tokenizer) find(token string) int {
	if id, ok := t.ids[token]; ok {
		return id
	}
	return -1
}
