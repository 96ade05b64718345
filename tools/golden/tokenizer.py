"""Writes models/tokenizer/testdata/golden.json: texts with CLIP's token ids.

An independent statement of the published algorithm: cleaning by the library
ftfy, words by the library regex, merges on strings. Where Hugging Face's
`tokenizers` is there too, its ids are compared for the texts that need no repair
by ftfy and hold no entity (that library does neither).

    pip install ftfy regex tokenizers
    python3 tools/golden/tokenizer.py bpe_simple_vocab_16e6.txt.gz
"""

import gzip
import html
import json
import pathlib
import sys
import unicodedata

try:
    import ftfy
    import regex
except ImportError as e:
    sys.exit(f"tokenizer.py: {e.name} is missing: pip install ftfy regex")

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "models" / "tokenizer" / "testdata" / "golden.json"

CIFAR100 = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel
streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm""".split()

TEXTS = CIFAR100 + [
    "", " ", "a", "a diagram", "a photo of a dog.", "A Photo Of A DOG!", "a photo of a {}", "X X X X a cat.",
    "art_painting", "lawn mower", "it's a dog's life", "they're", "we've", "I'm", "she'll", "he'd", "can't", "CAN'T",
    "rock 'n' roll", "'tis the 'season'", "''s", "'S 'LL", "o'clock", "don't've", "'re're", "1", "42", "1234567890",
    "3.14159", "1,000,000 dollars", "2nd 3rd", "mp3 h264", "50% off!!!", "e=mc^2", "#hashtag @user", "a/b\\c",
    "http://example.org/?q=1&r=2", "mail@example.org", "foo_bar-baz", "__init__", "---", "...", "?!?!", "(a) [b] {c}",
    "\"quoted\"", "tabs\tand\nnew\r\nlines", "  leading and trailing  ", "many     spaces", "no\u00a0break", "thin\u2009space",
    "ideographic\u3000space", "line\u2028separator", "next\u0085line", "caf\u00e9", "cafe\u0301", "na\u00efve r\u00e9sum\u00e9",
    "\u00dcber stra\u00dfe", "\u0130stanbul", "I\u0307", "\u039f\u0394\u039f\u03a3", "\u03a3\u0391\u03a3 \u03a3", "\u0421\u043e\u0431\u0430\u043a\u0430",
    "\u05db\u05dc\u05d1", "\u0643\u0644\u0628", "\u0915\u0941\u0924\u094d\u0924\u093e", "\u0e2b\u0e21\u0e32", "\u72ac", "\u4e00\u53ea\u72d7\u7684\u7167\u7247",
    "\u3044\u306c", "\u30a4\u30cc", "\uac1c", "\u2167 \u00bd \u00b2", "\u0661\u0662\u0663", "\u2460\u2461", "\U0001f600", "\U0001f436 dog \U0001f415\u200d\U0001f9ba",
    "\U0001f1eb\U0001f1f7", "\u2764\ufe0f", "\U0001f469\u200d\U0001f4bb", "\u2192 \u2260 \u221e", "\u20ac\u00a3\u00a5", "\u00a9\u00ae\u2122",
    "it\u2019s", "\u201cquoted\u201d", "\u2018a\u2019", "\u02bcn", "\u0149", "en\u2013dash em\u2014dash", "ellipsis\u2026", "\ufb01sh \ufb02ower", "\ufb05",
    "\u01c4 \u0132", "\uff21\uff22\uff23\uff01", "\uff76\uff9e", "soft\u00adhyphen", "zero\u200bwidth", "bom\ufeffhere", "bell\u0007here", "\u001b[31mred\u001b[0m",
    "del\u007fete", "fish &amp; chips", "&lt;b&gt;", "a &lt; b", "x < y &amp; z", "<b>bold</b>", "&amp;amp;", "&amp;lt;", "&amp;amp;amp;", "&eacute;t&eacute;", "&#39;s",
    "&#x1F600;", "&copy 2020", "&notanentity;", "&rsquo;s", "&NTILDE;u", "next\u0092s", "AT&T", "&", "&;", "&nbsp;x", "\u2028", "\u017fick", "'\u017f", "'\u017ft", "\u212aelvin",
    "<|startoftext|>", "<|endoftext|>", "a <|endoftext|> b", "<|ENDOFTEXT|>", "<|endoftext|", "<|x|>", "<", "'", "</w>", "a</w>",
    "abcdefghijklmnopqrstuvwxyz", "antidisestablishmentarianism", "pneumonoultramicroscopicsilicovolcanoconiosis", "z" * 200, "ab" * 150,
    "lol" * 40, "a photograph of a " + "very " * 60 + "big dog", "supercalifragilisticexpialidocious!" * 3, "\u00e9" * 50, "\U0001f600" * 20,
    "x" * 20 + "1" * 20 + "!" * 20, "CamelCaseWord", "ALLCAPS", "mixed\u4e2d\u6587and english", "Saint-\u00c9tienne", "\u00c5ngstr\u00f6m", "A\u030angstro\u0308m",
    "golden retriever", "sushi", "boeing 737-800", "a low resolution photo of the hard to see Yorkshire Terrier.",
]


def alphabet():
    visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    chars = {b: chr(b) for b in visible}
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + len(chars) - len(visible))
    return chars  # insertion order is the vocabulary's order


class Tokenizer:
    def __init__(self, merges):
        self.chars = alphabet()
        single = list(self.chars.values())
        names = single + [c + "</w>" for c in single] + [a + b for a, b in merges]
        names += ["<|startoftext|>", "<|endoftext|>"]
        assert len(set(names)) == len(names)
        self.ids = {n: i for i, n in enumerate(names)}
        self.rank = {m: i for i, m in enumerate(merges)}
        self.word = regex.compile(
            r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE)

    @staticmethod
    def clean(text):
        text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
        return regex.sub(r"\s+", " ", text).strip().lower()

    def pieces(self, word):
        if word in ("<|startoftext|>", "<|endoftext|>"):
            return [word]
        seq = [self.chars[b] for b in word.encode("utf-8")]
        seq[-1] += "</w>"
        while True:
            known = [p for p in zip(seq, seq[1:]) if p in self.rank]
            if not known:
                return seq
            a, b = min(known, key=self.rank.get)
            out = []
            while seq:
                if len(seq) > 1 and seq[0] == a and seq[1] == b:
                    out.append(a + b)
                    seq = seq[2:]
                else:
                    out.append(seq[0])
                    seq = seq[1:]
            seq = out

    def encode(self, text):
        return [self.ids[p] for w in self.word.findall(self.clean(text)) for p in self.pieces(w)]


def hugging_face(tok, merges):
    """Hugging Face's tokenizer over the same vocabulary, as its CLIP files set it up."""
    from tokenizers import Regex, Tokenizer as HF, models, normalizers, pre_tokenizers
    hf = HF(models.BPE(vocab=tok.ids, merges=merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    hf.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    hf.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    hf.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    return hf


def main():
    if len(sys.argv) != 2:
        sys.exit("tokenizer.py: give the path of bpe_simple_vocab_16e6.txt.gz")
    lines = gzip.open(sys.argv[1]).read().decode("utf-8").split("\n")
    merges = [tuple(line.split()) for line in lines[1:48894 + 1]]
    full, small = Tokenizer(merges), Tokenizer(merges[:1000])
    cases = [{"text": t, "clean": full.clean(t), "full": full.encode(t), "small": small.encode(t)} for t in TEXTS]
    try:
        hf = hugging_face(full, merges)
    except ImportError:
        print("tokenizers is not installed: not compared with Hugging Face")
    else:
        plain = [c for c in cases if c["clean"] == " ".join(unicodedata.normalize("NFC", c["text"]).lower().split())]
        differ = [c["text"] for c in plain if hf.encode(c["text"]).ids != c["full"]]
        print(f"Hugging Face agrees on {len(plain) - len(differ)} of {len(plain)} texts that need no repair; not on {differ}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with open(OUT, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    print(f"{OUT.relative_to(ROOT)}: {len(cases)} texts, ftfy {ftfy.__version__}, regex {regex.__version__}")


if __name__ == "__main__":
    main()
