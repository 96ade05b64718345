"""Writes a small OpenCLIP model, with the features that OpenCLIP computes of whole texts under several treatments, into
models/bundle/converted/testdata/openclip-texts.

    pip install open_clip_torch==3.3.0 transformers==5.23.0 ftfy==6.3.1
    python3 tools/golden/openclip_texts.py

The text tower is that of CLIPA and of OpenCLIP's SigLIP: no causal mask, read at the last position. texts.json has the texts, and of each treatment
text_cfg and the tokenizer; golden.safetensors has the features. Class prompts are whole sentences here: a template with the name in its place.
"""
import collections
import json
import os

import torch
from open_clip.model import CustomTextCLIP

import checkpoint as ck
from libraries import spread
from openclip_tokens import DATA, hugging_face

OUT = "models/bundle/converted/testdata/openclip-texts"
CONTEXT = 40

CLASSES = ["cat", "sea_lion", "St. Bernard", "Big-Dog (red)", "caf\u00e9 &amp; bar", "\u72ac", "..."]
TEMPLATES = ["a photo of a {}.", "art of the {}", "{} texture.", "A \u201cphoto\u201d of a_big {}, a type of pet!"]
SENTENCES = ["a photo of a cat.", "A PHOTO\u3000of a_b [SEP] &lt;x&gt;.", "", "?!", "\uff21 \ufb01sh\u2026"]

TREATMENTS = {
    "bert": [dict(), dict(strip_sep_token=True), dict(clean="canonicalize"), dict(clean="canonicalize", strip_sep_token=True)],
    "t5": [dict(clean="lower"), dict(clean="canonicalize")],
}


def main():
    torch.manual_seed(5)
    rows = max(t for name in TREATMENTS for t in [len(hugging_face(name).tokenizer)])
    text = dict(context_length=CONTEXT, vocab_size=rows, width=8, heads=2, layers=2, no_causal_mask=True, pool_type="last", proj_bias=True)
    vision = dict(image_size=8, layers=1, width=8, head_width=4, patch_size=4)
    model = spread(CustomTextCLIP(embed_dim=6, vision_cfg=vision, text_cfg=text))
    model.text.token_embedding.weight.data *= 10
    os.makedirs(OUT, exist_ok=True)
    ck.write_safetensors(f"{OUT}/open_clip_model.safetensors", collections.OrderedDict((k, v.detach()) for k, v in model.state_dict().items()))
    whole = [t.replace("{}", c) for t in TEMPLATES for c in CLASSES]
    golden, cases = collections.OrderedDict(), []
    for name, treatments in TREATMENTS.items():
        for kwargs in treatments:
            tok = hugging_face(name, **kwargs)
            tok.context_length = CONTEXT
            case = f"{name} {json.dumps(kwargs, sort_keys=True)}"
            cfg = dict(embed_dim=6, vision_cfg=vision, text_cfg=dict(text, hf_tokenizer_name=name, tokenizer_kwargs=kwargs))
            cases.append(dict(name=case, tokenizer=name, config=dict(model_cfg=cfg)))
            with torch.no_grad():
                golden[f"{case} sentences"] = model.encode_text(tok(SENTENCES))
                for t, f in zip(TEMPLATES, model.encode_text(tok(whole)).reshape(len(TEMPLATES), len(CLASSES), -1)):
                    golden[f"{case} {t}"] = f
            assert tok(whole + SENTENCES)[:, -1].unique().numel() == 1, "a text fills the context"
    ck.write_safetensors(f"{OUT}/golden.safetensors", golden)
    with open(f"{OUT}/texts.json", "w", encoding="utf-8") as f:
        json.dump(dict(classes=CLASSES, templates=TEMPLATES, sentences=SENTENCES, cases=cases), f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
