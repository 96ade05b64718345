package tokenizer

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits for one vocabulary file, in bytes after decompression: CLIP's largest list of merges has under four million,
// SigLIP 2's tokenizer.json 34 million. maxTokens limits maps.
const (
	maxFile = 16 << 20
	maxJSON = 64 << 20
)

const (
	// ConfigName is the file beside a tokenizer with settings that the tokenizer's file lacks.
	ConfigName = "tokenizer_config.json"

	jsonName   = "tokenizer.json"
	vocabName  = "vocab.json"
	mergesName = "merges.txt"
	openAIName = "bpe_simple_vocab_16e6.txt"
	bertName   = "vocab.txt"
	bertSep    = "[SEP]"
)

// Load reads a vocabulary from a folder or a file. In a folder it reads the first that exists of tokenizer.json,
// vocab.json with merges.txt, bpe_simple_vocab_16e6.txt.gz, bpe_simple_vocab_16e6.txt, BERT's vocab.txt and
// SentencePiece's spiece.model. A file may be any of these. A list of merges alone, gzipped or not, is numbered as
// OpenAI does and truncated after CLIPMerges. A tokenizer_config.json beside the file names the padding token, the
// separator, and how the texts of BERT's and SentencePiece's files are cleaned.
func Load(path string) (*Tokenizer, error) {
	path, err := FindFile(path)
	if err != nil {
		return nil, err
	}

	t, err := loadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}

	return t, nil
}

// FindFile returns the file that Load reads: path itself, or the first file that Load finds in a folder.
func FindFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("tokenizer: %w", err)
	}

	if !info.IsDir() {
		return path, nil
	}

	for _, name := range FileNames() {
		file := filepath.Join(path, name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}

	return "", fmt.Errorf("tokenizer: %s holds no vocabulary: need %s, or %s and %s, or %s.gz, or %s",
		path, jsonName, vocabName, mergesName, openAIName, spmNames[0])
}

// FileNames returns the files that Load searches in a folder, in order.
func FileNames() []string {
	return append([]string{jsonName, vocabName, openAIName + ".gz", openAIName, mergesName, bertName}, spmNames...)
}

// Beside returns the names of the files that Load reads from the folder of a file, if they exist.
func Beside(file string) []string {
	if filepath.Base(file) == vocabName {
		return []string{mergesName, ConfigName}
	}
	return []string{ConfigName}
}

func loadFile(path string) (*Tokenizer, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	hfConfig, err := readConfig(path)
	if err != nil {
		return nil, fmt.Errorf("%s beside it: %w; get the original file again", ConfigName, err)
	}

	var tokenizer *Tokenizer
	switch base, isJSON := filepath.Base(path), strings.HasSuffix(path, ".json"); {
	case base == xlmName:
		return nil, errors.New("transformers gives its pieces other ids: give the tokenizer.json that belongs to it")
	case strings.HasSuffix(path, ".model"):
		tokenizer, err = readSPM(file, hfConfig.Class == "SiglipTokenizer", orTrue(hfConfig.Lower))
	case base == bertName:
		tokenizer, err = readBERT(file, hfConfig)
	case base == vocabName:
		m, err := os.Open(filepath.Join(filepath.Dir(path), mergesName))
		if err != nil {
			return nil, fmt.Errorf("%s must lie beside it: %w", mergesName, err)
		}
		defer m.Close()
		return readVocab(file, m)
	case isJSON:
		tokenizer, err = readHF(file)
	default:
		merges, err := readMerges(file, CLIPMerges)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(base, openAIName) && len(merges) < CLIPMerges {
			return nil, fmt.Errorf("%d merges, OpenAI's list has %d and more: it is cut short", len(merges), CLIPMerges)
		}
		return fromMerges(merges)
	}

	return tokenizer.configured(hfConfig), err
}

// hfConfig holds the fields of tokenizer_config.json that are used.
type hfConfig struct {
	Class   string    `json:"tokenizer_class"`
	Lower   *bool     `json:"do_lower_case"`
	Accents *bool     `json:"strip_accents"`
	Chinese *bool     `json:"tokenize_chinese_chars"`
	Pad     tokenName `json:"pad_token"`
	Sep     tokenName `json:"sep_token"`
}

// tokenName is a token, or an object with its content.
type tokenName string

func (p *tokenName) UnmarshalJSON(data []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(data, (*string)(p)) == nil {
		return nil
	}
	err := json.Unmarshal(data, &object)
	*p = tokenName(object.Content)
	return err
}

// readConfig reads the tokenizer_config.json beside a file. A missing one is the zero value.
func readConfig(path string) (config hfConfig, err error) {
	f, err := os.Open(filepath.Join(filepath.Dir(path), ConfigName))
	if errors.Is(err, fs.ErrNotExist) {
		return config, nil
	}
	if err != nil {
		return config, err
	}
	defer f.Close()

	err = decodeJSON(f, &config)
	return config, err
}

// configured sets the separator of tokenizer_config.json, and its padding token or a token with a usual name for
// padding.
func (t *Tokenizer) configured(config hfConfig) *Tokenizer {
	if t == nil || t.clip {
		return t
	}

	if config.Sep != "" {
		t.sep = t.find(string(config.Sep))
	}

	if t.pad >= 0 {
		return t
	}

	for _, name := range []string{string(config.Pad), "<pad>", "[PAD]", t.tokens[t.eot]} {
		if id, ok := t.ids[name]; ok && name != "" {
			return t.WithPad(id)
		}
	}

	return t
}

// FromMerges returns OpenAI's vocabulary of the first limit merges of a list, gzipped or not; limit 0 means all. A list
// with fewer merges is an error.
func FromMerges(r io.Reader, limit int) (*Tokenizer, error) {
	merges, err := readMerges(r, limit)
	if err == nil && limit > 0 && len(merges) < limit {
		err = fmt.Errorf("%d merges, need %d: the list is cut short", len(merges), limit)
	}

	var t *Tokenizer
	if err == nil {
		t, err = fromMerges(merges)
	}

	if err != nil {
		return nil, fmt.Errorf("tokenizer: merges: %w", err)
	}

	return t, nil
}

// readMerges reads lines "left right" after an optional "#version" header, at most limit of them if limit is positive.
func readMerges(r io.Reader, limit int) ([]pair, error) {
	buf := bufio.NewReader(r)
	if magic, _ := buf.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(buf)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		defer z.Close()
		buf = bufio.NewReader(z)
	}

	var merges []pair
	lines := bufio.NewScanner(bounded(buf, maxFile))
	for n := 1; (limit <= 0 || len(merges) < limit) && lines.Scan(); n++ {
		line := lines.Text()
		if n == 1 && strings.Contains(line, "#version") {
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		tokens := strings.Fields(line)
		if len(tokens) != 2 {
			return nil, fmt.Errorf("line %d: %s is not two tokens with a space between them", n, quote(line))
		}
		merges = append(merges, pair{tokens[0], tokens[1]})
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("after %d merges: %w", len(merges), err)
	}

	if len(merges) == 0 {
		return nil, errors.New("no merges in it")
	}

	return merges, nil
}

// readVocab reads Hugging Face's older pair of files.
func readVocab(vocabFile, mergesFile io.Reader) (*Tokenizer, error) {
	vocab := vocabulary{}
	if err := decodeJSON(vocabFile, &vocab); err != nil {
		return nil, err
	}

	merges, err := readMerges(mergesFile, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mergesName, err)
	}

	return build(vocab, merges)
}

func decodeJSON(r io.Reader, into any) error {
	data, err := io.ReadAll(bounded(r, maxJSON))
	if err != nil {
		return err
	}
	return decode(data, into)
}

// decode reads JSON as encoding/json does, several times as fast. Names of members must have the right case.
func decode(data []byte, into any) error {
	err := jsonv2.Unmarshal(data, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("not the JSON of a vocabulary: %w", err)
	}
	return nil
}

// bounded returns a reader that fails after limit bytes, and does not just end.
func bounded(r io.Reader, limit int) io.Reader { return &boundedReader{r, limit, limit} }

type boundedReader struct {
	r           io.Reader
	left, limit int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes: not a vocabulary", b.limit)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
