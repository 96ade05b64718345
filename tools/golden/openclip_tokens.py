"""Writes what OpenCLIP's tokenizers give for texts into models/tokenizer/testdata/openclip.json.gz, and how its own configurations treat texts
into models/checkpoint/testdata/tokenizing.json.

    pip install open_clip_torch==3.3.0 transformers==5.23.0 tokenizers==0.23.3 ftfy==6.3.1
    python3 tools/golden/openclip_tokens.py

HFTokenizer gets a tokenizer of models/tokenizer/testdata/files in place of one by name. PreTrainedTokenizerFast loads the file as it is: the
classes of single models in transformers 5 build a tokenizer of their own out of the vocabulary, so that only its special tokens are given
here. SimpleTokenizer gets the first 1,000 merges of OpenAI's list.

Two kinds of texts are left out: those whose wrong character set ftfy repairs (mojibake), which main checks, and those that write out the
special tokens of CLIP, which OpenCLIP calls <start_of_text> and <end_of_text>.
"""
import gzip
import json
import os
import pathlib
import tempfile

import ftfy
import open_clip
import transformers
from open_clip import factory
from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

DATA = pathlib.Path("models/tokenizer/testdata")
CONTEXT = 80

TEXTS = [
    "", " ", "a", "cat", "a photo of a cat.", "A Photo Of A Dog!", "a photo of a (sea) lion, a type of pet.", "sea_lion", "_sea__lion_", "oak_tree.",
    "cat's", "it's a dog's life", "CAN'T won't", "rock 'n' roll", "\"quoted\" text", "\u201cquoted\u201d \u2018text\u2019", "well-known", "3.14 + 2 = 5",
    "50% off!!!", "AT&T", "a/b\\c", "#tag @user $5 ^_^ ~x~ `y` {z} [w] <v> |u|", ".", "...", "?!", "_", "___", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "fish &amp; chips", "&lt;b&gt;", "&amp;lt;i&amp;gt;", "&amp;amp;amp; x", "&eacute;t&eacute;", "&quot;dog&quot;", "&#39;s &#x27;t", "&nbsp;x&nbsp;",
    "a < b &amp; c", "<p>&Eacute;t&eacute;</p>", "&notanentity; x", "&copy 2020", "caf\u00e9 CAF\u00c9", "cafe\u0301", "na\u00efve \u00dcber stra\u00dfe", "\u0130stanbul I\u0307",
    "\u039f\u0394\u039f\u03a3", "\u039f\u0394\u039f\u03a3. \u039f\u0394\u039f\u03a3!x", "\u03a3_\u03a3", "\u0421\u043e\u0431\u0430\u043a\u0430 \u041a\u041e\u0422", "\u4e00\u53ea\u72d7\u7684\u7167\u7247\u3002", "\u3044\u306c\u3001\u30cd\u30b3", "\uac15\uc544\uc9c0 \uc0ac\uc9c4",
    "\u0e2b\u0e21\u0e32", "\u0643\u0644\u0628\u061f", "\U0001f436 dog \U0001f415!", "\u2764\ufe0f", "\U0001f469\u200d\U0001f4bb", "tabs\tand\nnew\r\nlines", "  two  spaces  ", "no\u00a0break", "thin\u2009space",
    "ideographic\u3000space\u3000", "line\u2028separator\u2029x", "next\u0085line", "form\x0cfeed", "vertical\x0btab", "unit\x1fseparator", "zero\u200bwidth", "bom\ufeffhere",
    "soft\u00adhyphen", "bell\x07here", "\x1b[31mred\x1b[0m", "\ufb01sh \ufb02ower", "\uff21\uff22\uff23\uff01", "ellipsis\u2026 em\u2014dash", "\u00bd \u00b2 \u2167", "[SEP]", "a [SEP] b", "a[SEP].",
    "[CLS] [PAD] [MASK] [UNK]", "<s> </s> <pad>", "</s>", "a </s> b</s>", "<eos> <bos>", "<e> <b>", "\u2581a\u2581b", "\u0120a", "&lt;/s&gt; &#91;SEP&#93;", "-_-", "(a)(b)", "\u00bfQu\u00e9?",
    "\u00a1Hola! \u00abx\u00bb", "x" * 30, "&#0; &#x80; &#x1F600; &#xD800;", "&#x1c;a&#31;b&#x0b;c", "&#13;a&#x7f;b", "&rsquo;s &hellip;", "e\u0301_E\u0301", "&amp;amp;lt;\n<b>&amp;amp;lt;", "&#x90; \u0081", "&#x49;&#x307;",
]

# Special tokens of the files, as tokenizer_config.json would give them.
SPECIAL = {
    "bert": dict(sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]"),
    "roberta": dict(sep_token="</s>", pad_token="<pad>", cls_token="<s>"),
    "xlm": dict(sep_token="</s>", pad_token="<pad>"),
    "t5": dict(sep_token="</s>", pad_token="</s>"),
    "gemma": dict(pad_token="<pad>"),
    "clip": dict(pad_token="<e>"),
}


def hugging_face(name, **options):
    """HFTokenizer over a file."""
    path = str(DATA / "files" / name / "tokenizer.json")
    own = transformers.AutoTokenizer.from_pretrained
    transformers.AutoTokenizer.from_pretrained = lambda *a, cache_dir=None, **k: transformers.PreTrainedTokenizerFast(tokenizer_file=path, **SPECIAL[name], **k)
    try:
        return HFTokenizer(name, context_length=CONTEXT, **options)
    finally:
        transformers.AutoTokenizer.from_pretrained = own


def simple(clean, **options):
    with tempfile.TemporaryDirectory() as d:
        with gzip.open(f"{d}/merges.gz", "wb") as f:
            f.write((DATA / "merges-1000.txt").read_bytes().rstrip(b"\n"))
        return SimpleTokenizer(f"{d}/merges.gz", context_length=CONTEXT, clean=clean, **options)


def harmless():
    """Options that models/checkpoint/tokenizing.go takes as changing nothing: no row of a text that fits the context differs."""
    for name in SPECIAL:
        want = hugging_face(name)(TEXTS)
        for more in (dict(language=None), dict(use_fast=True), dict(padding_side="right"), dict(truncation_side="left"), dict(model_max_length=5),
                     dict(clean_up_tokenization_spaces=True), dict(clean_up_tokenization_spaces=False)):
            assert (hugging_face(name, **more)(TEXTS) == want).all(), (name, more)
    want = simple("lower")(TEXTS)
    for more in (dict(additional_special_tokens=None), dict(additional_special_tokens=[]), dict(reduction_mask=None), dict(reduction_mask="simple"),
                 dict(reduction_mask="random"), dict(reduction_mask="shuffle")):
        assert (simple("lower", **more)(TEXTS) == want).all(), more


def configurations():
    """The text_cfg of OpenCLIP's own configurations, as far as it is about texts, with what get_tokenizer makes of it."""
    class Recorder(HFTokenizer):
        def __init__(self, name, context_length=None, clean="whitespace", strip_sep_token=False, **rest):
            assert not any(v is not None for v in rest.values()), rest
            self.found = dict(huggingface=True, clean=clean, strip=strip_sep_token)

    own, factory.HFTokenizer, seen = factory.HFTokenizer, Recorder, {}
    for name in open_clip.list_models():
        text = open_clip.get_model_config(name).get("text_cfg")
        # A SigLIP by the name of its configuration alone has a tokenizer that no folder can ask for.
        if not text or "siglip" in name.lower() and not text.get("hf_tokenizer_name"):
            continue
        t = open_clip.get_tokenizer(name)
        cleaned = {"_clean_" + k: k for k in ("lower", "whitespace", "canonicalize")}
        found = t.found if isinstance(t, Recorder) else dict(huggingface=False, clean=cleaned[t.clean_fn.__name__], strip=False)
        text = {k: text[k] for k in ("hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs", "hf_model_name", "pool_type", "no_causal_mask") if k in text}
        seen[json.dumps([{k: v != "" if k.startswith("hf_") else v for k, v in text.items()}, found], sort_keys=True)] = dict(name=name, text_cfg=text, **found)
    factory.HFTokenizer = own
    return [seen[k] for k in sorted(seen, key=lambda k: seen[k]["name"])]


def main():
    for text in TEXTS:
        assert ftfy.fix_text(text) == ftfy.fix_text(text, fix_encoding=False), f"mojibake: {text!r}"
    harmless()
    cases = []
    for clean in ("lower", "whitespace", "canonicalize"):
        made = [("merges-1000.txt", False, simple(clean))]
        for name, special in SPECIAL.items():
            made += [(name, strip, hugging_face(name, clean=clean, strip_sep_token=strip)) for strip in (False, True)[:1 + ("sep_token" in special)]]
        for name, strip, tok in made:
            rows = tok(TEXTS).tolist()
            cases.append(dict(tokenizer=name, special=SPECIAL.get(name, {}), clean=clean, strip=strip, ids=rows))
            assert all(len(r) == CONTEXT for r in rows)
    golden = dict(versions={m.__name__: m.__version__ for m in (open_clip, transformers, ftfy)}, context=CONTEXT, texts=TEXTS, cases=cases)
    with gzip.GzipFile(DATA / "openclip.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(golden, separators=(",", ":")).encode())
    with open("models/checkpoint/testdata/tokenizing.json", "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in configurations()) + "\n]\n")


if __name__ == "__main__":
    main()
