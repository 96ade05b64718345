// Package tokenizer implements CLIP's lower-cased byte-pair tokenizer, and any other tokenizer that a tokenizer.json
// describes. It may import runtime/atomicfile.
//
// Sources: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (ICML 2021), section
// 2.4, and its published code; Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (ACL
// 2016), algorithm 1, for the merge loop.
//
// A text is cleaned (see Clean) and split into words, and every word's UTF-8 bytes are joined pair by pair, lowest
// merge first. The last piece of a word has the suffix </w>.
//
// Other tokenizers follow their tokenizer.json and return the ids of Hugging Face's library (TestFiles: 11 tokenizers,
// 10,000 strings each). No Go library does this: sugarme/tokenizer 0.3.0 returns other ids for 27 to 98 of 100 of those
// strings if it does not panic, gomlx/go-huggingface 0.3.1 has only SentencePiece's BPE, and the others wrap the Rust
// library with cgo, which this layer must not use.
package tokenizer
