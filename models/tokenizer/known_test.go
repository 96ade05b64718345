package tokenizer

import (
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// Spells finds the words that CLIP's vocabulary has only as letters and bytes. The counts of tokens and letters are,
// for example, 3 and 1 for 猫, 6 and 5 for кошка, 8 and 4 for γάτα, but 1 and 4 for café.
func TestSpells(t *testing.T) {
	tok := full(t)
	for text, want := range map[string]bool{"猫": true, "ねこ": true, "고양이": true, "кошка": true,
		"big γάτα": true, "แมว": true, "łódź": true, "café": false, "Straßenbahn": false, "kočka": false,
		"crème brûlée": false, "golden retriever": false, "BAE 146-200": false, "xyzzy": false, "🐱": false, "": false} {
		if got, err := tok.Spells(text); err != nil || got != want {
			t.Errorf("%q: %t, %v; want %t", text, got, err, want)
		}
	}
}

// A vocabulary with words of other languages knows them. A word of the token for unknown text is not known.
func TestSpellsOtherVocabularies(t *testing.T) {
	bert, err := readBERT(strings.NewReader("[PAD]\n[UNK]\n[CLS]\n[SEP]\n猫\nко\n##шка\ndog\n"), hfConfig{})
	goldentest.NoError(t, err)
	// SentencePiece writes a word of unknown letters as a space and one token for unknown text.
	pieces, err := readHF(strings.NewReader(`{"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["</s>",0],` +
		`["▁",-3],["▁ко",-2],["шка",-2],["猫",-2],["▁dog",-1]]},"pre_tokenizer":{"type":"Metaspace",` +
		`"replacement":"▁"},"post_processor":{"type":"BertProcessing","sep":["</s>",1],"cls":["</s>",1]}}`))
	goldentest.NoError(t, err)
	for _, tok := range []*Tokenizer{bert, pieces} {
		for text, want := range map[string]bool{"猫": false, "кошка": false, "犬": true, "собака": true,
			"dog": false} {
			if got, err := tok.Spells(text); err != nil || got != want {
				t.Errorf("%q: %t, %v; want %t", text, got, err, want)
			}
		}
	}
}
