"""Writes small OpenCLIP checkpoints whose towers are timm's and transformers', with what OpenCLIP computes, into models/bundle/converted/testdata.

    pip install transformers==4.44.2 timm==1.0.15    (beside Debian's python3-torch 1.13 and python3-torchvision)
    pip download --no-deps open_clip_torch==3.3.0 && unzip open_clip_torch-3.3.0-*.whl -d DIR
    python3 tools/golden/inside.py DIR

openclip-siglip: attention pooling, no class token, as in the SigLIPs of the Hub in OpenCLIP's form. openclip-bert: class token and layer scale,
and a BERT read at its first token behind two layers, as in BiomedCLIP. openclip-roberta: average pooling and a projection with a bias, and a
RoBERTa whose tokens are averaged. openclip-pooler: OpenCLIP's own image tower, and a BERT read through its pooling layer.
"""
import collections
import json
import os
import shutil
import sys
import tempfile
import types

import torch
from tokenizers import Tokenizer

import checkpoint as ck
from libraries import spread
from siglip import CLASSES, OUT, measured, read_safetensors

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
    for p, v in model.named_parameters():
        if p.endswith("gamma"):
            v.data = 0.5 + torch.rand_like(v)
    out = f"{OUT}/{name}"
    os.makedirs(out, exist_ok=True)
    ck.write_safetensors(f"{out}/open_clip_model.safetensors", collections.OrderedDict((k, v.detach()) for k, v in model.state_dict().items()))
    with open(f"{out}/open_clip_config.json", "w", encoding="utf-8") as f:
        json.dump(dict(model_cfg=cfg, preprocess_cfg=dict(mean=[0.5] * 3, std=[0.5] * 3, resize_mode="squash")), f)
    size = cfg["vision_cfg"]["image_size"]
    pixels = torch.randn(2, 3, size, size)
    golden = dict(pixels=pixels, image=model.encode_image(pixels), logit_scale=model.logit_scale.exp().reshape(1))
    if model.logit_bias is not None:
        golden["logit_bias"] = model.logit_bias.reshape(1)
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


def names():
    """Writes models/checkpoint/testdata/timm.json: width, heads, activation and epsilon of timm's plain vision transformers, by name."""
    from timm.models import vision_transformer as vit
    out, own = {}, vit._create_vision_transformer
    vit._create_vision_transformer = lambda variant, pretrained=False, **kwargs: kwargs
    for name in sorted(dir(vit)):
        if not name.startswith("vit_") or name.endswith("_") or name in vit.default_cfgs and not callable(getattr(vit, name)):
            continue
        k = getattr(vit, name)()
        plain = not any(key in k for key in ("block_fn", "mlp_layer", "reg_tokens", "qk_norm", "no_embed_class", "final_norm", "embed_layer"))
        norm = k.get("norm_layer")
        if isinstance(k, dict) and plain and k.get("qkv_bias", True) and (norm is None or norm is torch.nn.LayerNorm):
            out[name] = [k["embed_dim"], k["num_heads"], k.get("act_layer", "gelu"), 1e-5 if norm else 1e-6]
    vit._create_vision_transformer = own
    with open("models/checkpoint/testdata/timm.json", "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(v)}" for n, v in out.items()) + "\n}\n")


def main():
    from timm.models import register_model
    from timm.models.vision_transformer import VisionTransformer
    from transformers import BertConfig, RobertaConfig

    def tower(name, **own):
        def make(pretrained=False, **kwargs):
            kwargs.pop("pretrained_cfg", None), kwargs.pop("pretrained_cfg_overlay", None), kwargs.pop("cache_dir", None)
            model = VisionTransformer(**{**dict(img_size=8, patch_size=2, embed_dim=12, depth=2, num_heads=2, mlp_ratio=3), **own, **kwargs})
            model.default_cfg = {}
            return model
        make.__name__, make.__module__ = name, __name__
        sys.modules[__name__].__dict__[name] = make
        register_model(make)

    tower("vit_tiny_patch2_siglip_8", class_token=False, global_pool="map")
    tower("vit_small_patch2_8", init_values=0.1)
    tower("vit_base_patch2_clip_quickgelu_8", pre_norm=True, norm_layer=torch.nn.LayerNorm, act_layer="quick_gelu")
    vocab = json.load(open(f"{OUT}/huggingface/vocab.json", encoding="utf-8"))
    known = dict(read_safetensors(f"{OUT}/golden.safetensors"))
    vision = lambda name, **more: dict(image_size=8, timm_model_name=name, timm_model_pretrained=False, **more)
    stored("openclip-siglip", dict(
        embed_dim=12, init_logit_bias=-10, vision_cfg=vision("vit_tiny_patch2_siglip_8", timm_pool="map", timm_proj="none"),
        text_cfg=dict(context_length=32, vocab_size=530, width=8, heads=2, layers=2, no_causal_mask=True, proj_bias=True, pool_type="last",
                      norm_kwargs=dict(eps=1e-6), act_kwargs=dict(approximate="tanh"))),
        [vocab["<|startoftext|>"]], [known[f"tokens/{c}"] for c in CLASSES], 0, 32, lambda t: t.token_embedding)

    sizes = dict(hidden_size=8, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2)
    words = lambda t: t.transformer.embeddings.word_embeddings

    def tokens(path):
        tok = Tokenizer.from_file(path)
        ids = [tok.encode(c + ".").ids for c in CLASSES]
        return tok.get_vocab_size(), [ids[0][0]], [i[1:] for i in ids]

    n, start, rows = tokens(f"{FILES}/bert/tokenizer.json")
    bert = BertConfig(vocab_size=n, max_position_embeddings=60, pad_token_id=2, **sizes)
    stored("openclip-bert", dict(
        embed_dim=6, vision_cfg=vision("vit_small_patch2_8", timm_pool="", timm_proj="linear"),
        text_cfg=dict(hf_model_name="bert-tiny", context_length=40, hf_proj_type="mlp", hf_pooler_type="cls_last_hidden_state_pooler")),
        start, rows, 2, 40, words, bert)
    stored("openclip-pooler", dict(
        embed_dim=6, vision_cfg=dict(image_size=8, layers=2, width=12, head_width=6, patch_size=2),
        text_cfg=dict(hf_model_name="bert-tiny", context_length=40, hf_proj_type="linear", hf_pooler_type="cls_pooler")),
        start, rows, 2, 40, words, bert)
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
    names()
    main()
