"""Writes a small OpenCLIP model with a RoBERTa as ONNX files into models/bundle/exported/testdata/roberta, with what OpenCLIP computes.

    pip install transformers==4.44.2 timm==1.0.15    (beside Debian's python3-torch 1.13 and python3-torchvision)
    pip download --no-deps open_clip_torch==3.3.0 && unzip open_clip_torch-3.3.0-*.whl -d DIR
    python3 tools/golden/inside.py DIR

The image tower is a vision transformer of timm with average pooling and a projection with a bias; the tokens of the RoBERTa are averaged.
"""
import json
import os
import shutil
import sys
import tempfile
import types

import torch
from tokenizers import Tokenizer

from libraries import spread
from siglip import CLASSES, OUT, measured

FILES = "models/tokenizer/testdata/files"


def stored(name, cfg, start, rows, pad, context, embedding, text_config=None):
    """The model of a configuration, whose text tower is made of a configuration of transformers where one is given."""
    from open_clip.model import CustomTextCLIP
    with tempfile.TemporaryDirectory() as d:
        if text_config is not None:
            text_config.save_pretrained(d)
        made = json.loads(json.dumps(cfg))
        if text_config is not None:
            made["text_cfg"].update(hf_model_name=d, hf_model_pretrained=False)
        made["text_cfg"].pop("hf_tokenizer_name", None)
        model = spread(CustomTextCLIP(**made))
    size = cfg["vision_cfg"]["image_size"]
    pixels = torch.randn(2, 3, size, size)
    golden = dict(pixels=pixels, image=model.encode_image(pixels), logit_scale=model.logit_scale.exp().reshape(1))
    measured(name, golden, model.encode_text, embedding(model.text), rows, start, pad, context, 8, filler=7)
    return model


def padded_at_one():
    """The vocabulary of a RoBERTa, with its padding at 1, where RoBERTa has it."""
    with open(f"{FILES}/roberta/tokenizer.json", encoding="utf-8") as f:
        text = json.load(f)
    model = text["model"]
    model["merges"] = [" ".join(m) for m in model["merges"]]
    other = {1: 2, 2: 1}
    model["vocab"] = {t: other.get(i, i) for t, i in model["vocab"].items()}
    for a in text["added_tokens"]:
        a["id"] = other.get(a["id"], a["id"])
    text["padding"]["pad_id"], text["post_processor"]["sep"] = 1, ["</s>", 2]
    os.makedirs(f"{OUT}/openclip-roberta", exist_ok=True)
    path = f"{OUT}/openclip-roberta/tokenizer.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(text, f, ensure_ascii=False)
    return path


def main():
    from timm.models import register_model
    from timm.models.vision_transformer import VisionTransformer
    from transformers import RobertaConfig

    def tower(name, **own):
        def make(pretrained=False, **kwargs):
            kwargs.pop("pretrained_cfg", None), kwargs.pop("pretrained_cfg_overlay", None), kwargs.pop("cache_dir", None)
            model = VisionTransformer(**{**dict(img_size=8, patch_size=2, embed_dim=12, depth=2, num_heads=2, mlp_ratio=3), **own, **kwargs})
            model.default_cfg = {}
            return model
        make.__name__, make.__module__ = name, __name__
        sys.modules[__name__].__dict__[name] = make
        register_model(make)

    tower("vit_base_patch2_clip_quickgelu_8", pre_norm=True, norm_layer=torch.nn.LayerNorm, act_layer="quick_gelu")
    vision = lambda name, **more: dict(image_size=8, timm_model_name=name, timm_model_pretrained=False, **more)
    sizes = dict(hidden_size=8, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2)
    words = lambda t: t.transformer.embeddings.word_embeddings

    def tokens(path):
        tok = Tokenizer.from_file(path)
        ids = [tok.encode(c + ".").ids for c in CLASSES]
        return tok.get_vocab_size(), [ids[0][0]], [i[1:] for i in ids]

    n, start, rows = tokens(padded_at_one())
    model = stored("openclip-roberta", dict(
        embed_dim=6, vision_cfg=vision("vit_base_patch2_clip_quickgelu_8", timm_pool="avg", timm_proj=None),
        text_cfg=dict(hf_model_name="roberta-tiny", context_length=40)),
        start, rows, 1, 40, words, RobertaConfig(vocab_size=n, max_position_embeddings=60, pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5, **sizes))
    exported(model)


def exported(model):
    """The towers of the RoBERTa as files, whose golden file is that of the checkpoint: masks, positions and means are made of ids inside."""
    out = "models/bundle/exported/testdata/roberta"
    os.makedirs(out, exist_ok=True)
    shutil.copy(f"{OUT}/openclip-roberta/tokenizer.json", out)
    batch = {"input": {0: "batch"}, "output": {0: "batch"}}
    for name, tower, x in (("visual", model.visual, torch.randn(2, 3, 8, 8)), ("textual", model.text, torch.randint(3, 90, (2, 40)))):
        torch.onnx.export(tower, x, f"{out}/{name}.onnx", opset_version=14, input_names=["input"], output_names=["output"], dynamic_axes=batch)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    package = types.ModuleType("open_clip")
    package.__path__ = [f"{sys.argv[1]}/open_clip"]
    sys.modules["open_clip"] = package
    torch.manual_seed(12)
    main()
