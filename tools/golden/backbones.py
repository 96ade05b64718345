"""Writes models/bundle/exported/testdata/openclip.csv: which configurations of open_clip that `promptfed convert` refuses promptfed.export_backbone writes;
and tools/promptfed/inspect/testdata/witness, a small backbone that export_backbone wrote.

    pip install -r tools/golden/architectures.txt
    PYTHONPATH=tools/python PATH=bin:$PATH python3 tools/golden/backbones.py [PATTERN ...]

The models are the small forms of architectures.py, with its weights, so that attention is uneven and every part counts. A model is exact if the program
computes features of an image and of texts, a loss and a prompt's gradient that differ by at most 1e-4 of the largest value from those of PyTorch.
"""
import contextlib
import csv
import gzip
import os
import re
import shutil
import sys
import tempfile
import traceback

import torch
import open_clip
from open_clip.transform import PreprocessCfg, image_transform_v2

import architectures as arch
import promptfed.backbone as backbone

OUT = "models/bundle/exported/testdata/openclip.csv"
CONVERTED = "models/bundle/converted/testdata/architectures.csv"
WITNESS = "tools/promptfed/inspect/testdata/witness"
# Arguments by which timm makes a small tower of a family; the first with which a tower of the family runs are used.
SMALL = [dict(depth=1), dict(depths=(1, 1, 1, 1)), dict(layers=(1, 1, 1, 1)), dict(layers=(1, 1, 1, 1, 1)), {}]


class Small(arch.TimmSize):
    def __enter__(self):
        import timm
        self.own = timm.create_model

        def create(name, **kwargs):
            side = self.more["img_size"]
            for size in (dict(img_size=side), {}):
                for more in SMALL:
                    with contextlib.suppress(TypeError, AssertionError, RuntimeError), torch.no_grad():
                        tower = self.own(name, **{**kwargs, **size, **more}).eval()
                        tower(torch.zeros(2, 3, side, side))
                        return tower
            raise AssertionError(name)
        timm.create_model = create


def refused():
    with open(CONVERTED, encoding="utf-8") as f:
        return [r["configuration"] for r in csv.DictReader(f) if r["library"].startswith("open_clip") and r["result"] != "exact"]


huggingface_text = arch.huggingface_text


def of_rows(text, rows):
    """The configuration of a text tower of transformers with at least as many tokens as the tokenizer has."""
    config = huggingface_text(text)
    config.vocab_size = max(config.vocab_size, rows)
    return config


def model_of(name, cfg):
    """A small form of a configuration with weights of the formula, its transform of images and its tokenizer."""
    cfg = arch.native(name, arch.small(name, cfg))
    v, t = cfg["vision_cfg"], cfg["text_cfg"]
    if "multimodal_cfg" in cfg:
        v.update(width=24, head_width=8, layers=2, patch_size=4, image_size=12)
        if "hf_model_name" not in t:
            t.update(width=16, heads=2, layers=2)
        cfg["embed_dim"] = 16
        v["attn_pooler_heads"] = 2
        cfg["multimodal_cfg"].update(width=16, heads=2, layers=1)
    elif "timm_model_name" in v and not v["timm_model_name"].startswith(("vit_", "eva")):
        v["image_size"] = 64
    tok, _, rows, _, eot = arch.tokenizer_of(t)
    if "hf_model_name" not in t:
        t["vocab_size"] = rows
        if t.get("pool_type") == "eos":
            t["eos_id"] = eot
    if "timm_model_name" in v and "patch" not in v["timm_model_name"]:
        v["image_size"] = 64
    arch.TimmSize = Small
    arch.huggingface_text = lambda text: of_rows(text, rows)
    model = arch.filled(arch.build(cfg, "cpu"))
    size = v["image_size"]
    return model, image_transform_v2(PreprocessCfg(size=size, mean=(0.5,) * 3, std=(0.5,) * 3), is_train=False), tok


def export(name):
    """"exact", or the reason why there is no bundle."""
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(os.environ.get("KEEP", d), name)
        try:
            model, preprocess, tokenizer = model_of(name, open_clip.get_model_config(name))
            backbone.export_backbone(model, preprocess, tokenizer, out, name=name, source=f"open_clip {open_clip.__version__}")
            return "exact"
        except backbone.Error as e:
            return re.sub(r"\S*/", "", str(e))[:400]
        except Exception as e:  # of the model
            traceback.print_exc()
            return f"open_clip: {type(e).__name__}: {str(e).splitlines()[0][:200]}"


def witness():
    """A small model that `promptfed convert` refuses, with a vocabulary of few merges, as the test data of `promptfed check`."""
    cfg = dict(embed_dim=6, vision_cfg=dict(image_size=12, patch_size=4, width=16, head_width=8, layers=1, qk_norm=True),
               text_cfg=dict(context_length=32, width=8, heads=2, layers=1))
    with tempfile.NamedTemporaryFile(suffix=".gz") as f, open(arch.MERGES, "rb") as merges:
        f.write(gzip.compress(b"".join(next(merges) for _ in range(9)).rstrip()))
        f.flush()
        tokenizer = open_clip.SimpleTokenizer(bpe_path=f.name, context_length=32)
    cfg["text_cfg"]["vocab_size"] = tokenizer.vocab_size
    model = arch.filled(arch.build(cfg, "cpu"))
    transform = image_transform_v2(PreprocessCfg(size=12, resize_mode="shortest"), is_train=False)
    shutil.rmtree(WITNESS, ignore_errors=True)
    print(backbone.export_backbone(model, transform, tokenizer, WITNESS, name="witness", source=f"open_clip {open_clip.__version__}"))


def main():
    witness()
    patterns = [re.compile(p) for p in sys.argv[1:]]
    old = {}
    if os.path.exists(OUT):
        with open(OUT, encoding="utf-8") as f:
            old = {r["configuration"]: r["result"] for r in csv.DictReader(f)}
    rows = []
    for name in refused():
        if not patterns or any(p.search(name) for p in patterns):
            rows.append((name, export(name)))
            print(*rows[-1], flush=True)
        elif name in old:
            rows.append((name, old[name]))
    with open(OUT, "w", encoding="utf-8", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows([("configuration", "result"), *rows])


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
