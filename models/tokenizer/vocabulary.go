package tokenizer

import "fmt"

// maxID limits the ids in a vocabulary file.
const maxID = 1 << 22

// alphabet maps every byte to a visible character: printable Latin-1 bytes to themselves, the other 68 to U+0100
// onwards. order lists the bytes in the order of the published vocabulary.
var (
	alphabet [256]string
	order    []byte
	byteOf   = map[rune]byte{}
)

func init() {
	visible := func(b int) bool {
		return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xff && b != 0xad
	}
	next := rune(0x100)
	var hidden []byte
	for b := range 256 {
		r := rune(b)
		if visible(b) {
			order = append(order, byte(b))
		} else {
			hidden = append(hidden, byte(b))
			r = next
			next++
		}
		alphabet[b] = string(r)
		byteOf[r] = byte(b)
	}
	order = append(order, hidden...)
}

// fromMerges numbers the tokens as OpenAI does: bytes, bytes that end a word, merges, start of text, end of text.
func fromMerges(merges []pair) (*Tokenizer, error) {
	vocab := make(map[string]int, len(merges)+2*256+2)
	for _, end := range []string{"", wordEnd} {
		for _, b := range order {
			vocab[alphabet[b]+end] = len(vocab)
		}
	}
	for i, m := range merges {
		if err := parts(vocab, i, m); err != nil {
			return nil, err
		}
		if err := added(vocab, m.left+m.right); err != nil {
			return nil, fmt.Errorf("merge %d: %w", i+1, err)
		}
	}
	for _, s := range []string{StartOfText, EndOfText} {
		if err := added(vocab, s); err != nil {
			return nil, err
		}
	}
	return build(vocab, merges)
}

func added(vocab map[string]int, token string) error {
	if _, ok := vocab[token]; ok {
		return fmt.Errorf("token %s is made a second time", quote(token))
	}
	vocab[token] = len(vocab)
	return nil
}

// parts checks that both sides of a merge are tokens.
func parts(vocab map[string]int, i int, m pair) error {
	for _, side := range []string{m.left, m.right} {
		if _, ok := vocab[side]; !ok {
			return fmt.Errorf("merge %d (%s and %s): %s is not a token: the file is damaged or not CLIP's",
				i+1, quote(m.left), quote(m.right), quote(side))
		}
	}
	return nil
}

// build checks and indexes a vocabulary. Ids may have gaps.
func build(vocab map[string]int, merges []pair) (*Tokenizer, error) {
	t := &Tokenizer{
		tokens: make(map[int]string, len(vocab)),
		ids:    vocab,
		merges: merges,
		join:   make(map[[2]int]merge, len(merges)),
		sep:    -1,
		cache:  &wordCache{pieces: map[string][]int{}},
	}
	for token, id := range vocab {
		if id < 0 || id >= maxID {
			return nil, fmt.Errorf("token %s has id %d, outside 0..%d", quote(token), id, maxID-1)
		}
		if twin, ok := t.tokens[id]; ok {
			return nil, fmt.Errorf("tokens %s and %s share id %d", quote(min(token, twin)), quote(max(token, twin)), id)
		}
		t.tokens[id] = token
		t.size = max(t.size, id+1)
	}
	var ok bool
	if t.sos, ok = vocab[StartOfText]; !ok {
		return nil, fmt.Errorf("no token %s: not a CLIP vocabulary", StartOfText)
	}
	if t.eot, ok = vocab[EndOfText]; !ok {
		return nil, fmt.Errorf("no token %s: not a CLIP vocabulary", EndOfText)
	}
	for b := range 256 {
		t.inner[b] = t.find(alphabet[b])
		t.final[b] = t.find(alphabet[b] + wordEnd)
	}
	for i, m := range merges {
		if err := parts(vocab, i, m); err != nil {
			return nil, err
		}
		id := t.find(m.left + m.right)
		if id < 0 {
			return nil, fmt.Errorf("merge %d makes %s, which is not a token: vocabulary and merges do not belong "+
				"together",
				i+1, quote(m.left+m.right))
		}
		p := [2]int{vocab[m.left], vocab[m.right]}
		if _, ok := t.join[p]; ok {
			return nil, fmt.Errorf("merge %d (%s and %s) is listed a second time", i+1, quote(m.left), quote(m.right))
		}
		t.join[p] = merge{rank: i, id: id}
	}
	return t, nil
}
