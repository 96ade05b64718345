"""Writes small checkpoints whose towers are not OpenAI's, with what their libraries compute, into models/bundle/converted/testdata.

    pip install transformers==4.44.2 sentencepiece protobuf    (beside Debian's python3-torch 1.13)
    pip download --no-deps open_clip_torch==3.3.0 && unzip open_clip_torch-3.3.0-*.whl -d DIR
    python3 tools/golden/siglip.py DIR

siglip: transformers' SiglipModel and SiglipTokenizer. chinese: its ChineseCLIPModel. openclip-avg, openclip-last: OpenCLIP's CLIP with average pooling, norm
behind the pooling, layer scale, tanh GELU and a bias of the sigmoid loss; and without causal mask, read at the last position,
with a projection that has a bias, and without the norm in front of the image tower's first block.
"""
import collections
import json
import os
import shutil
import sys
import tempfile
import types

import torch

import checkpoint as ck
from libraries import spread

OUT = "models/bundle/converted/testdata"
CTX = 5
CLASSES = ["cat", "the thing", "sea lion", "red pandas and others"]
SENTENCES = ["a photo of a cat.", "the", "other things"]


def store(name, golden):
    ck.write_safetensors(f"{OUT}/{name}.golden.safetensors", collections.OrderedDict(sorted(
        ((k, v.detach()) for k, v in golden.items()), key=lambda kv: kv[1].is_floating_point())))


def measured(name, golden, text, embedding, rows, start, pad, context, width, filler=0):
    """Features of [start prompt name . end], padded: rows of the prompt take the place of those of another token; and gradients."""
    ctx = torch.randn(CTX, width, requires_grad=True)
    at = len(start)
    ids = torch.tensor([(start + [filler] * CTX + r + [pad] * context)[:context] for r in rows])
    hook = embedding.register_forward_hook(
        lambda module, args, out: torch.cat([out[:, :at], ctx.expand(len(out), -1, -1), out[:, at + CTX:]], 1))
    feature = text(ids)
    hook.remove()
    cotangent = torch.randn_like(feature)
    (feature * cotangent).sum().backward()
    golden.update(ctx=ctx, end=feature, cotangent=cotangent, grad=ctx.grad, eot=torch.tensor([at + CTX + len(r) - 1 for r in rows]))
    for c, r in zip(CLASSES, rows):
        golden[f"tokens/{c}"] = torch.tensor(r)
    store(name, golden)


def siglip():
    import sentencepiece
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipTokenizer
    from tokenizer_files import RULES, corpus
    folder = f"{OUT}/siglip"
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/corpus", "w", encoding="utf-8") as f:
            f.write("\n".join(s.replace("\n", " ").replace("\0", "").lower() for s in corpus()[:202]) + "\n" + "\n".join(CLASSES * 50))
        with open(f"{d}/rules.tsv", "w", encoding="utf-8") as f:
            f.write(RULES)
        sentencepiece.SentencePieceTrainer.train(
            input=f"{d}/corpus", model_prefix=f"{d}/spiece", vocab_size=220, character_coverage=0.98, minloglevel=2, num_threads=1,
            hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_tsv=f"{d}/rules.tsv")
        tok = SiglipTokenizer(f"{d}/spiece.model", model_max_length=16)
        config = SiglipConfig(
            text_config=dict(vocab_size=230, hidden_size=12, intermediate_size=29, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=16),
            vision_config=dict(hidden_size=12, intermediate_size=37, num_hidden_layers=2, num_attention_heads=2, image_size=14, patch_size=2))
        model = spread(SiglipModel(config))
        model.logit_scale.data[:], model.logit_bias.data[:] = 4.7, -12.9
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder, safe_serialization=True)
        tok.save_pretrained(folder)
        SiglipImageProcessor(size=dict(height=14, width=14)).save_pretrained(folder)
    pixels = torch.randn(2, 3, 14, 14)
    golden = dict(pixels=pixels, image=model.get_image_features(pixels), logit_scale=model.logit_scale.exp(), logit_bias=model.logit_bias,
                  sentences=model.get_text_features(tok(SENTENCES, padding="max_length", return_tensors="pt").input_ids))
    both = model(tok(SENTENCES, padding="max_length", return_tensors="pt").input_ids, pixels)
    golden["logits"] = both.logits_per_image
    golden["probabilities"] = torch.sigmoid(both.logits_per_image)
    exported(model, folder)
    measured("siglip", golden, model.get_text_features, model.text_model.embeddings.token_embedding, [tok(c + ".").input_ids for c in CLASSES],
             [], tok.pad_token_id, 16, 12)
    odd = ["", "A Photo, of a DOG!", "  Two  spaces ", "e\u0301a\u0301 \ufb01sh", "x-y_z", "\u72d7 dog", "it's 3.14", "tab\tnew\nline", "\u2026\u3000x", "<unk>"]
    with open(f"{OUT}/siglip.tokens.json", "w", encoding="utf-8") as f:
        json.dump({s: tok(s).input_ids for s in odd}, f, ensure_ascii=False)


def chinese():
    from tokenizers import Tokenizer
    from transformers import BertTokenizer, ChineseCLIPConfig, ChineseCLIPImageProcessor, ChineseCLIPModel
    folder = f"{OUT}/chinese"
    vocab = Tokenizer.from_file("models/tokenizer/testdata/files/bert/tokenizer.json").get_vocab()
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(f"{folder}/vocab.txt", "w", encoding="utf-8") as f:
        f.write("\n".join(sorted(vocab, key=vocab.get)) + "\n")
    tok = BertTokenizer(f"{folder}/vocab.txt")
    config = ChineseCLIPConfig(
        text_config=dict(vocab_size=len(vocab), hidden_size=12, intermediate_size=29, num_hidden_layers=2, num_attention_heads=3,
                         max_position_embeddings=40),
        vision_config=dict(hidden_size=12, intermediate_size=37, num_hidden_layers=2, num_attention_heads=2, image_size=14, patch_size=2),
        projection_dim=6)
    model = spread(ChineseCLIPModel(config))
    model.save_pretrained(folder, safe_serialization=True)
    ChineseCLIPImageProcessor(size=dict(height=14, width=14), do_center_crop=False).save_pretrained(folder)
    pixels = torch.randn(2, 3, 14, 14)
    golden = dict(pixels=pixels, image=model.get_image_features(pixels), logit_scale=model.logit_scale.exp().reshape(1),
                  sentences=model.get_text_features(**tok(SENTENCES, padding=True, return_tensors="pt")))
    text = lambda ids: model.get_text_features(input_ids=ids, attention_mask=(ids != tok.pad_token_id).long())
    measured("chinese", golden, text, model.text_model.embeddings.word_embeddings, [tok(c + ".").input_ids[1:] for c in CLASSES],
             [tok.cls_token_id], tok.pad_token_id, 40, 12, filler=7)


def chinese_exported():
    """The towers as Chinese-CLIP's code exports them: for one text and one image, weights beside the graph, the mask made of the ids inside."""
    import onnx
    from transformers import ChineseCLIPModel
    model = ChineseCLIPModel.from_pretrained(f"{OUT}/chinese").eval()
    pad, out = 2, "models/bundle/exported/testdata/chinese-clip"
    os.makedirs(out, exist_ok=True)
    shutil.copy(f"{OUT}/chinese/vocab.txt", out)

    class Text(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, x):
            return self.m.text_projection(self.m.text_model(x, attention_mask=x.ne(pad).long())[0][:, 0])

    class Image(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, x):
            return self.m.get_image_features(x)

    for kind, net, x, names in (("img", Image(), torch.zeros(1, 3, 14, 14), ["image", "unnorm_image_features"]),
                                ("txt", Text(), torch.randint(5, 90, (1, 40)), ["text", "unnorm_text_features"])):
        name = f"vit-b-16.{kind}.fp32.onnx"
        torch.onnx.export(net, x, f"{out}/{name}", opset_version=13, input_names=names[:1], output_names=names[1:])
        m = onnx.load(f"{out}/{name}")
        os.remove(f"{out}/{name}")
        onnx.save(m, f"{out}/{name}", save_as_external_data=True, location=f"{name}.extra_file", size_threshold=64)


def exported(model, folder):
    """The towers as transformers.js has them, ids without a mask; the golden file is that of the checkpoint."""
    out = "models/bundle/exported/testdata/siglip"
    os.makedirs(f"{out}/onnx", exist_ok=True)
    for name in ("preprocessor_config.json", "spiece.model", "tokenizer_config.json"):
        shutil.copy(f"{folder}/{name}", f"{out}/{name}")

    class Pooled(torch.nn.Module):
        def __init__(self, tower):
            super().__init__()
            self.tower = tower

        def forward(self, x):
            y = self.tower(x)
            return y.last_hidden_state, y.pooler_output

    model.vision_model.embeddings.patch_embedding.padding = (0, 0)  # "valid" has no operator
    names = ["last_hidden_state", "pooler_output"]
    torch.onnx.export(Pooled(model.text_model), torch.zeros(2, 16, dtype=torch.int64), f"{out}/onnx/text_model.onnx", opset_version=14,
                      input_names=["input_ids"], output_names=names, dynamic_axes={n: {0: "batch"} for n in ["input_ids"] + names})
    torch.onnx.export(Pooled(model.vision_model), torch.zeros(2, 3, 14, 14), f"{out}/onnx/vision_model.onnx", opset_version=14,
                      input_names=["pixel_values"], output_names=names, dynamic_axes={n: {0: "batch"} for n in ["pixel_values"] + names})


def prompted():
    """Features of images with prompt tokens in front of the first block and in place of those in front of the second, and gradients."""
    from transformers import SiglipModel
    model = SiglipModel.from_pretrained(f"{OUT}/siglip").eval().vision_model
    pixels = dict(load(f"{OUT}/siglip.golden.safetensors"))["pixels"]
    tokens, deep = torch.randn(2, 12, requires_grad=True), torch.randn(3, 12, requires_grad=True)
    x = model.embeddings(pixels)
    n = x.shape[1]
    for block, own in zip(model.encoder.layers, (tokens, deep)):
        x = block(torch.cat([x[:, :n], own.expand(len(x), -1, -1)], 1), None)[0]
    y = torch.nn.functional.normalize(model.head(model.post_layernorm(x)), dim=-1)
    d = torch.randn_like(y)
    (y * d).sum().backward()
    values = dict(pixels=pixels, tokens=tokens, deep=deep, image=y, d=d, tokens_grad=tokens.grad, deep_grad=deep.grad)
    ck.write_safetensors("models/bundle/exported/testdata/siglip.prompted.safetensors",
                         collections.OrderedDict((k, v.detach().contiguous()) for k, v in values.items()))


def load(path):
    from safetensors.torch import load_file
    return load_file(path).items()


def whole():
    """A SigLIP in one file, as small as can be, with the scale and the bias of the other one."""
    from transformers import SiglipConfig, SiglipModel
    model = spread(SiglipModel(SiglipConfig(
        text_config=dict(vocab_size=4, hidden_size=2, intermediate_size=2, num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=2),
        vision_config=dict(hidden_size=2, intermediate_size=2, num_hidden_layers=1, num_attention_heads=1, image_size=2, patch_size=2))))
    model.logit_scale.data[:], model.logit_bias.data[:], model.vision_model.embeddings.patch_embedding.padding = 4.7, -12.9, (0, 0)
    exp, torch.Tensor.exp = torch.Tensor.exp, lambda x: exp(x).to(x.device)  # as in CLIPModel of transformers 5
    model.forward, forward = lambda i, p: forward(input_ids=i, pixel_values=p)[:2], model.forward
    torch.onnx.export(model, (torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 3, 2, 2)), "models/bundle/exported/testdata/siglip.whole.onnx",
                      opset_version=14, input_names=["input_ids", "pixel_values"], output_names=["logits_per_image", "logits_per_text"])


def open_clip(folder, name, vision, text, **more):
    package = types.ModuleType("open_clip")
    package.__path__ = [f"{folder}/open_clip"]
    misc = types.ModuleType("torchvision.ops.misc")
    misc.FrozenBatchNorm2d = torch.nn.BatchNorm2d
    sys.modules.update({"open_clip": package, "torchvision": types.ModuleType("torchvision"), "torchvision.ops": types.ModuleType("torchvision.ops"),
                        "torchvision.ops.misc": misc})
    from open_clip.model import CLIP, CustomTextCLIP
    cfg = dict(embed_dim=6, vision_cfg=dict(image_size=8, layers=2, width=12, head_width=4, patch_size=2, **vision),
               text_cfg=dict(context_length=32, vocab_size=530, width=8, heads=2, layers=2, **text))
    model = spread((CustomTextCLIP if text else CLIP)(**cfg, **more))
    for p, v in model.named_parameters():
        if p.endswith("gamma"):
            v.data = 0.5 + torch.rand_like(v)
    out = f"{OUT}/{name}"
    os.makedirs(out, exist_ok=True)
    ck.write_safetensors(f"{out}/open_clip_model.safetensors", collections.OrderedDict((k, v.detach()) for k, v in model.state_dict().items()))
    with open(f"{out}/open_clip_config.json", "w", encoding="utf-8") as f:
        json.dump(dict(model_cfg=cfg, preprocess_cfg=dict(mean=[0.5] * 3, std=[0.5] * 3, resize_mode="longest", fill_color=0)), f)
    pixels = torch.randn(2, 3, 8, 8)
    vocab = json.load(open(f"{OUT}/huggingface/vocab.json", encoding="utf-8"))
    start, end = vocab["<|startoftext|>"], vocab["<|endoftext|>"]
    golden = dict(pixels=pixels, image=model.encode_image(pixels), logit_scale=model.logit_scale.exp().reshape(1))
    if model.logit_bias is not None:
        golden["logit_bias"] = model.logit_bias.reshape(1)
    known = dict(read_safetensors(f"{OUT}/golden.safetensors"))
    rows = [known[f"tokens/{c}"] for c in CLASSES]
    embedding = model.text.token_embedding if text else model.token_embedding
    measured(name, golden, model.encode_text, embedding, rows, [start], 0, 32, 8)


def read_safetensors(path):
    return ((k, v.tolist()) for k, v in load(path) if k.startswith("tokens/"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.manual_seed(11)
    siglip()
    chinese()
    open_clip(sys.argv[1], "openclip-avg", dict(pool_type="avg", final_ln_after_pool=True, ls_init_value=0.1, act_kwargs=dict(approximate="tanh")), {},
              init_logit_bias=-10)
    open_clip(sys.argv[1], "openclip-last", dict(pool_type="avg", no_ln_pre=True), dict(no_causal_mask=True, pool_type="last", proj_bias=True))
    whole()
    prompted()
    chinese_exported()
