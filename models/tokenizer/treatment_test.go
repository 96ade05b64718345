package tokenizer

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// openCLIP holds results that tools/golden/openclip_tokens.py computed with OpenCLIP 3.3.0: whole sequences of Context
// ids.
type openCLIP struct {
	Context int
	Texts   []string
	Cases   []struct {
		Tokenizer, Clean string
		Special          map[string]string
		Strip            bool
		IDs              [][]int64
	}
}

func readOpenCLIP(t testing.TB) (golden openCLIP) {
	t.Helper()
	goldentest.ReadJSON(t, "testdata/openclip.json.gz", &golden)
	return golden
}

// withSpecial loads a tokenizer of testdata/files, with a tokenizer_config.json beside it.
func withSpecial(t testing.TB, name string, special map[string]string) *Tokenizer {
	t.Helper()
	if name == "merges-1000.txt" {
		return small(t)
	}
	dir := t.TempDir()
	data := filetest.Read(t, "testdata/files/"+name+"/tokenizer.json")
	config := goldentest.JSON(t, special)
	for file, data := range map[string][]byte{jsonName: data, ConfigName: config} {
		filetest.Write(t, filepath.Join(dir, file), data)
	}
	return load(t, dir)
}

// Whole sequences, including padding, are those of OpenCLIP's HFTokenizer and SimpleTokenizer for every tokenizer and
// treatment. The stored file does not depend on the treatment, and a tokenizer that is loaded from it and gets the same
// treatment returns the same ids.
func TestOpenCLIP(t *testing.T) {
	golden := readOpenCLIP(t)
	if len(golden.Texts) < 80 || len(golden.Cases) != 33 {
		t.Fatalf("%d texts, %d cases", len(golden.Texts), len(golden.Cases))
	}
	stripped := 0
	for _, c := range golden.Cases {
		tok := withSpecial(t, c.Tokenizer, c.Special)
		treated, err := tok.WithCleaning(TextCleaning{Clean: c.Clean, StripSep: c.Strip})
		goldentest.NoError(t, err)
		var plain, file bytes.Buffer
		goldentest.NoError(t, tok.Write(&plain))
		if err := treated.Write(&file); err != nil || !bytes.Equal(plain.Bytes(), file.Bytes()) {
			t.Errorf("%s: a treatment changes the file: %v", c.Tokenizer, err)
		}
		back, err := readHF(&file)
		goldentest.NoError(t, err)
		if back, err = back.WithCleaning(treated.Cleaning()); err != nil {
			t.Fatal(err)
		}
		for i, text := range golden.Texts {
			got, err := treated.Sequence(text, golden.Context)
			if err != nil || !slices.Equal(got, c.IDs[i]) {
				t.Errorf("%s, %s, strip %v: %+q gives %v, %v\nwant %v", c.Tokenizer, c.Clean, c.Strip, text, got, err,
					c.IDs[i])
			}
			if again, err := back.Sequence(text, golden.Context); err != nil || !slices.Equal(got, again) {
				t.Errorf("%s, %s, strip %v: %+q from the stored file: %v, %v", c.Tokenizer, c.Clean, c.Strip, text,
					again, err)
			}
		}
		if c.Strip {
			if stripped++; treated.EOT() != 0 || tok.EOT() == 0 {
				t.Errorf("%s: ends with %d, without treatment with %d", c.Tokenizer, treated.EOT(), tok.EOT())
			}
		}
	}
	if stripped != 12 {
		t.Errorf("%d cases strip the separator", stripped)
	}
}

// CLIP's own tokenizer without a treatment equals the one with Lower.
func TestOwnCleaning(t *testing.T) {
	own := small(t)
	lower, err := own.WithCleaning(TextCleaning{Clean: Lower})
	goldentest.NoError(t, err)
	for _, c := range golden(t) {
		for _, tok := range []*Tokenizer{own, lower} {
			if got, err := tok.Encode(c.Text); err != nil || !slices.Equal(got, c.Small) {
				t.Errorf("%q: %v, %v, want %v", c.Text, got, err, c.Small)
			}
		}
	}
}

// WithCleaning finds the separator, and refuses the treatment if nothing names one. WithPad keeps the treatment.
func TestSeparator(t *testing.T) {
	for _, c := range []struct {
		name, config, sep, want string // sep is that of the treatment
		id                      int
	}{
		{"bert", "", "", "", 1},                   // the template ends texts with [SEP]
		{"roberta", "", "", "", 1},                // the sep of RobertaProcessing is </s>
		{"words", "", "", "", 1},                  // likewise in BertProcessing
		{"t5", "", "", "sep_token", 0},            // </s> ends texts, and is not a separator
		{"t5", "", "</s>", "", 1},                 // unless the treatment
		{"xlm", `"</s>"`, "", "", 1},              // or tokenizer_config.json names it
		{"xlm", `{"content":"<unk>"}`, "", "", 2}, // in both notations
		{"bert", `"[UNK]"`, "", "", 3},            // which takes precedence over the file
		{"bert", `"[UNK]"`, "[MASK]", "", 4},      // and the treatment over both
		{"bert", `"[NONE]"`, "", "sep_token", 0},  // A separator that no text can hold
		{"bert", "", "[NONE]", `sep_token "[NONE]" is not in the vocabulary`, 0},
		{"merges-1000.txt", "", "", "CLIP's own tokenizer has no separator", 0},
		{"merges-1000.txt", "", "a", "CLIP's own tokenizer has no separator", 0},
	} {
		tok := small(t)
		if c.name != "merges-1000.txt" {
			dir := t.TempDir()
			data := filetest.Read(t, "testdata/files/"+c.name+"/tokenizer.json")
			files := map[string][]byte{jsonName: data}
			if c.config != "" {
				files[ConfigName] = []byte(`{"sep_token":` + c.config + `}`)
			}
			for file, data := range files {
				filetest.Write(t, filepath.Join(dir, file), data)
			}
			var err error
			if tok, err = Load(dir); err != nil {
				t.Fatal(err)
			}
		}
		treated, err := tok.WithCleaning(TextCleaning{StripSep: true, Sep: c.sep})
		if c.want != "" {
			goldentest.WantErrorOf(t, c.name, err, c.want)
			continue
		}
		if err != nil {
			t.Fatal(c.name, err)
		}
		if treated.strip != c.id || treated.Cleaning().Sep != tok.tokens[c.id] {
			t.Errorf("%s: separator %d %+v, want %d", c.name, treated.strip, treated.Cleaning(), c.id)
		}
		again, err := treated.WithCleaning(TextCleaning{})
		if err != nil || again.EOT() != tok.EOT() || again.sep != tok.sep {
			t.Errorf("%s: a treatment taken back leaves %+v, %v", c.name, again, err)
		}
		ids, err := treated.WithPad(c.id).Sequence(tok.tokens[c.id]+" a "+tok.tokens[c.id], 20)
		if err != nil || slices.Contains(ids, int64(c.id)) || ids[19] != 0 {
			t.Errorf("%s: %v, %v", c.name, ids, err)
		}
	}
}

func TestTreatmentErrors(t *testing.T) {
	for want, x := range map[string]TextCleaning{
		`clean is "upper", must be one of [lower whitespace canonicalize]`: {Clean: "upper"},
		`sep_token is "x" without strip_sep_token`:                         {Sep: "x"},
	} {
		_, err := small(t).WithCleaning(x)
		goldentest.WantError(t, err, want)
	}
	for want, x := range map[string]TextCleaning{
		"": {}, "cleaned: canonicalize": {Clean: Canonicalize},
		"cleaned: whitespace, token 0 for the separator [SEP]": {Whitespace, true, "[SEP]"},
	} {
		if x.String() != want {
			t.Errorf("%q, want %q", x, want)
		}
	}
}

// FuzzTreatment: no text makes a tokenizer with a treatment panic, its ids are in the vocabulary, and none is the
// separator.
func FuzzTreatment(f *testing.F) {
	all := []*Tokenizer{small(f)}
	for _, name := range []string{"bert", "xlm", "clip"} {
		tok := load(f, "testdata/files/"+name)
		all = append(all, tok)
	}
	for _, text := range readOpenCLIP(f).Texts {
		f.Add(text, uint8(len(text)))
	}
	f.Add("&#99999999999999999999;&#xFFFE;&#x10FFFF;&;", uint8(2))
	f.Fuzz(func(t *testing.T, text string, kind uint8) {
		x := TextCleaning{Clean: cleanings[kind%3], StripSep: kind&4 != 0}
		for i, tok := range all {
			if x.Sep = ""; x.StripSep && i == 2 {
				x.Sep = "</s>"
			}
			treated, err := tok.WithCleaning(x)
			if err != nil {
				if i > 0 || !x.StripSep {
					t.Fatal(err)
				}
				continue
			}
			ids, err := treated.Encode(text)
			if err != nil && utf8.ValidString(text) && len(text) <= maxText/8 {
				t.Fatalf("%q: %v", text, err)
			}
			for _, id := range ids {
				if id < 0 || id >= tok.VocabSize() || x.StripSep && id == treated.strip {
					t.Fatalf("%q: id %d", text, id)
				}
			}
		}
	})
}

// ftfy's fix_text replaces these characters; the neighbours of each range stay.
func TestFixedCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"\u0080\u0099\u009f": "€™Ÿ", "\u0081": "\u0081", "\u00a0": "\u00a0", "\u02bb\u02bc\u02bd": "\u02bb'\u02bd",
		"\u2017\u2018\u201b": "\u2017''", "\u201c\u201f\u2020": `""` + "\u2020", "\u0149": "'n", "\ufb05": "\u017ft",
		"\u0131\u0132\u0133\u0134": "\u0131IJij\u0134", "\u01c3\u01c4\u01cc\u01cd": "\u01c3D\u017dnj\u01cd",
		"\u01f0\u01f1\u01f3\u01f4": "\u01f0DZdz\u01f4", "\ufaff\ufb00\ufb06\ufb07": "\ufaffffst\ufb07",
		"\uff00\uff01\uff5e": "\uff00!~", "\ufff1": "\ufff1", "\x07\x7f\t\n": "\t\n", "\x1f\x20": " ",
	} {
		if got := mapped(text, fixed); got != want {
			t.Errorf("%+q became %+q, want %+q", text, got, want)
		}
	}
}

// By hand: 2.675 is 2675/1000 in one division, and numbers that have no such form are read as usual.
func TestScores(t *testing.T) {
	for text, want := range map[string]float64{"2.675": 2675.0 / 1000, "-2.5": -2.5, "3": 3, "1.5e3": 1500,
		"1.5E-1": 0.15, "-0.0": 0, "0.12345678901234567890123": 0.12345678901234567890123,
		"-9.21034049987793": -921034049987793.0 / 1e14} {
		if got, err := score(text); err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", text, got, err, want)
		}
	}
	if _, err := score("x.5"); err == nil {
		t.Error("x.5 is a number")
	}
}
