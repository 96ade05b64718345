"""Trains small tokenizers of every kind with Hugging Face's library, and writes them with the ids that it gives to strings.

    pip install tokenizers==0.22.2 sentencepiece
    python3 tools/golden/tokenizer_files.py models/tokenizer/testdata/files 300
    python3 tools/golden/tokenizer_files.py FOLDER 10000       # then FILES=FOLDER go test ./models/tokenizer -run TestFiles

Every folder has a tokenizer.json; ids.json.gz has the strings, with the ids of each tokenizer. Strings are random mixtures
of many scripts, emoji, combining marks, control characters, white space and long words; the first ones are fixed.
"""
import gzip
import json
import os
import pathlib
import random
import sys
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
           "éèêëàâäôöùûüçñßøåæœÉÈÀÖÜÇÑİıſ", "абвгдеёжзийклмнопрстуфхцчшщъыьэюяАБВГД", "αβγδεζηθικλμνξοπρσςτυφχψωΑΒΓΣ",
           "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "कखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह", "กขคฆงจฉชซญดตถทธนบปผพภมยรลวสห",
           "一只狗的照片猫中文字符测试漢字", "いぬねこのしゃしんカタカナイヌ", "강아지고양이사진한국어", "😀🐶🐕🚀❤👩💻🇫🇷🥰🫠", "\u0301\u0300\u0308\u0323\u064b\u093f\u0e31\u200d\ufe0f\u20e3",
           "\t\n\r\u0001\u0008\u001f\u007f\u0085\u00a0\u2009\u3000\u200b\u200e\ufeff\u2028\u00ad\ufffd\u180e", "½²Ⅷ①٣४", "ﬁﬂ㎏ＡＢｶﾞ…“”‘’—–€£©™",
           "𝒜𝔸𐍈𠀀", "\u1100\u1161\u11a8\u0958\u212b\u0344", "▁Ġ<|>"]
WORDS = "a photo of the dog cat's they're I'll WE'VE don't running unbelievable <|x|> [MASK] [SEP] <s> </s> <mask>  x1y2 3.14 http://a.b/c".split(" ")
FIXED = ["", " ", "a photo of a dog.", "A Photo Of A DOG!", "  two  spaces ", "a\u0301e\u0301", "e\u0301\u0301", "antidisestablishmentarianism " * 3,
         "z" * 150, "a[MASK]b [MASK] c", "x <mask>  y", "un<mask>able", "<mask><mask>", "dogs dog. dog2 _dog_ dog", "\u4e00\u53ea\u72d7", "👩‍💻👨‍👩‍👧",
         "\U0001f1eb\U0001f1f7", "\u0000", "tab\tnew\nline", "ÀÉÎ", "İstanbul", "ΟΔΟΣ", "ﬁsh", "１２３", "½", "a\u00a0b", "a\u3000b", "\u200bx", "Ⅷ", "▁a▁▁b", "Ġa"]


def strings(n, seed=1):
    r = random.Random(seed)
    out = list(FIXED)
    while len(out) < n:
        parts = []
        for _ in range(r.randint(1, 8)):
            kind = r.random()
            if kind < 0.3:
                parts.append(r.choice(WORDS))
            elif kind < 0.35:
                parts.append(r.choice(SCRIPTS[:14])[0] * r.randint(1, 130))
            else:
                some = r.sample(SCRIPTS, r.randint(1, 3))
                parts.append("".join(r.choice(r.choice(some)) for _ in range(r.randint(1, 9))))
            parts.append(r.choice([" ", " ", " ", "", "  ", "\t", "\u3000", ". "]))
        s = "".join(parts)
        if r.random() < 0.5:
            s = s.rstrip()
        out.append(s)
    return out[:n]


def corpus():
    return (ROOT / "LICENSE").read_text(encoding="utf-8").split("\n") + strings(1500, seed=2)


def trained(tok, trainer):
    tok.train_from_iterator(corpus(), trainer)
    return tok


ends = lambda first, last: processors.TemplateProcessing(single=f"{first} $A {last}".strip(), special_tokens=[(t, i) for t, i in ((first, 0), (last, 1)) if t])


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained(t, trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.Sequence([processors.ByteLevel(), ends("", "</s>")])
    return t


def roberta():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trained(t, trainers.BpeTrainer(vocab_size=520, special_tokens=["<s>", "</s>", "<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    t.enable_padding(pad_id=2, pad_token="<pad>")
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trained(t, trainers.BpeTrainer(vocab_size=560, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = ends("<s>", "</s>")
    return t


def clip():
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<e>", continuing_subword_prefix=""))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    trained(t, trainers.BpeTrainer(vocab_size=700, special_tokens=["<b>", "<e>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), end_of_word_suffix="</w>"))
    t.post_processor = processors.RobertaProcessing(("<e>", 1), ("<b>", 0), trim_offsets=False, add_prefix_space=False)
    return t


def gemma():
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] + ["<0x%02X>" % i for i in range(256)]
    trained(t, trainers.BpeTrainer(vocab_size=700, special_tokens=special, limit_alphabet=120, max_token_length=8))
    t.post_processor = ends("", "<eos>")
    return t


def unknown():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="first", split=True),
                                               pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(individual_digits=True)])
    trained(t, trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>", "<unk>"], limit_alphabet=60))
    t.post_processor = ends("<s>", "</s>")
    return t


def bert(lower=True):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained(t, trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"], limit_alphabet=500))
    t.post_processor = ends("[CLS]", "[SEP]")
    return t


def words():
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.NFC(), normalizers.NFD()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(), pre_tokenizers.CharDelimiterSplit("_"),
                                               pre_tokenizers.Split("e", "merged_with_next"), pre_tokenizers.Split(Regex("[aou]+"), "contiguous")])
    trained(t, trainers.WordLevelTrainer(vocab_size=400, special_tokens=["<s>", "</s>", "<unk>"]))
    t.add_tokens([AddedToken("dog", single_word=True), AddedToken("<mask>", rstrip=True, normalized=True), AddedToken("CAT", normalized=True)])
    t.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    return t


def pieces(rules, **options):
    """A model of SentencePiece and its fields, by its own trainer."""
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/corpus", "w", encoding="utf-8") as f:
            f.write("\n".join(s.replace("\n", " ").replace("\0", "") for s in corpus()))
        if "\t" in rules:
            with open(f"{d}/rules.tsv", "w", encoding="utf-8") as f:
                f.write(rules)
            options["normalization_rule_tsv"] = f"{d}/rules.tsv"
        else:
            options["normalization_rule_name"] = rules
        sentencepiece.SentencePieceTrainer.train(input=f"{d}/corpus", model_prefix=f"{d}/m", vocab_size=900, character_coverage=0.98, minloglevel=2,
                                                 hard_vocab_limit=False, num_threads=1, **options)
        return open(f"{d}/m.model", "rb").read()


RULES = "41\t61\n42\t62\n49\t69\nC9\t65\nFB01\t66 69\n65 301\tE9\n3000\t20\n200B\t\n9\t20\nA\t20\nA0\t20\n2026\t2E 2E 2E\n"


def unigram(rules, fallback, **options):
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto.FromString(pieces(rules, byte_fallback=fallback, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **options))
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], unk_id=2, byte_fallback=fallback))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    t.add_special_tokens(["<pad>", "</s>", "<unk>"])
    t.post_processor = ends("", "</s>")
    return t


def t5(rules):
    t = unigram(rules, False)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.enable_padding(pad_id=1, pad_token="</s>", length=16)
    return t


def xlm(rules):
    t = unigram(rules, True)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return t


if __name__ == "__main__":
    out, n = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    rules = "nmt_nfkc" if n > 1000 else RULES
    made = dict(gpt2=gpt2, roberta=roberta, llama3=llama3, clip=clip, gemma=gemma, unknown=unknown, bert=bert,
                cased=lambda: bert(False), words=words, t5=lambda: t5(rules), xlm=lambda: xlm(rules))
    texts = strings(n)
    golden = dict(texts=texts, ids={})
    for name, make in made.items():
        t = make()
        (out / name).mkdir(parents=True, exist_ok=True)
        text = json.loads(t.to_str())
        with open(out / name / "tokenizer.json", "w", encoding="utf-8") as f:
            json.dump(text, f, ensure_ascii=False, separators=(",", ":"))
        t = Tokenizer.from_file(str(out / name / "tokenizer.json"))
        t.no_padding()
        golden["ids"][name] = [e.ids for e in t.encode_batch(texts)]
    with gzip.GzipFile(out / "ids.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(golden, separators=(",", ":")).encode())
