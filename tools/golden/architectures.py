"""Writes models/checkpoint/timm.json and models/bundle/converted/testdata/architectures.json.gz: small forms of every tower that other libraries make, with what they compute.

    pip install -r tools/golden/architectures.txt
    python3 tools/golden/architectures.py [PATTERN ...]

Every configuration of open_clip, every vit_* of timm (as the image tower of an OpenCLIP model), every model_type of transformers that has features of
images and of texts, and variants that published configurations do not have. An entry holds the files of the checkpoint's folder but the weights, the
names and shapes of its tensors, and outputs (names alone where there are no outputs). Weights, pixels and prompts come from the formula below, which architectures_test.go repeats, so that
the file holds outputs only: features of images and texts, the loss, and the gradient of a prompt, each multiplied with a matrix of the same formula
to 16 numbers a row. Entries without outputs are to be refused.

Sizes are small where a configuration states them. Image towers of timm keep their width and heads, which only their name states, and have one block.
Tokenizers are those of models/tokenizer/testdata, since the published ones lie on the Hub.
"""
import base64
import copy
import glob
import gzip
import json
import os
import re
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

OUT = "models/bundle/converted/testdata/architectures.json.gz"
FILES = "models/tokenizer/testdata/files"
ROBERTA = "models/bundle/converted/testdata/openclip-roberta"
MERGES = "models/tokenizer/testdata/merges-1000.txt"
TEXTS = ["A photo of a Cat.", "the quick-brown FOX!", 'dog\'s "house" & co', "sea_lion"]
CLASSES = ["Cat", "sea-lion", "red panda, old"]
CTX = 3
LABELS = [0, 2]


# --- the formula ---

def uniform(name, n):
    """n numbers in [-1,1) with 24 bits: FNV-1a of the name, then the steps of SplitMix64."""
    h = 14695981039346656037
    for b in name.encode():
        h = ((h ^ b) * 1099511628211) % (1 << 64)
    with np.errstate(over="ignore"):
        x = np.uint64(h) + (np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(40)).astype(np.float32) * np.float32(2 ** -23) - np.float32(1)


def rule(name, shape):
    """Offset and scale of a tensor: gains, biases, positions and embeddings that count, and uneven attention."""
    last = name.split(".")[-1]
    if last == "logit_scale":
        return 2.5, 0.5
    if last == "logit_bias":
        return -3, 1
    if last in ("gamma", "running_var"):
        return 1, 0.5
    if len(shape) < 2:
        return (1, 0.3) if last == "weight" else (0, 0.3)
    if any(w in name for w in ("position", "pos_embed", "cls_token", "probe", "latent")):
        return 0, 0.5
    if any(w in name for w in ("token_embedding", "word_embeddings", "token_type_embeddings")):
        return 0, 0.6
    inputs = shape[0] if last in ("proj", "text_projection") else int(np.prod(shape[1:]))
    uneven = 2 if any(w in name for w in ("in_proj", "qkv", "q_proj", "k_proj", "query", "key", "attn_pool.q.", "attn_pool.kv.")) else 1
    return 0, uneven * (3 / inputs) ** 0.5


def formula(name, shape):
    offset, scale = rule(name, shape)
    v = uniform(name, int(np.prod(shape))) * np.float32(scale) + np.float32(offset)
    return torch.from_numpy(v.astype(np.float32).reshape(list(shape)))


def sketch(rows):
    """rows [n,d] times a matrix [d,16] of the formula, in double precision, as base64 of little-endian float32."""
    rows = rows.detach().double()
    m = torch.from_numpy(uniform("sketch", rows.shape[1] * 16).astype(np.float64).reshape(rows.shape[1], 16))
    return base64.b64encode((rows @ m).numpy().astype("<f4").tobytes()).decode()


def filled(model):
    for name, v in model.state_dict().items():
        if v.is_floating_point():
            v.copy_(formula(name, v.shape))
    return model.eval()


def tensors(model):
    return [[n, list(v.shape)] for n, v in model.state_dict().items() if v.is_floating_point()]


# --- what a model computes ---

def measured(image, text, embedding, ids, start, size, width, state):
    """image and text are functions to features; ids makes padded rows of tokens of texts; embedding is the module of the tokens' embeddings."""
    pixels = formula("pixels", [2, 3, size, size])
    features = image(pixels)
    out = dict(image=sketch(features), text=sketch(text(ids(TEXTS))))
    word, *own = ids(["x", *("x " + c + "." for c in CLASSES)]).tolist()  # names have the tokens that they have behind a word
    name = next(i for i, (a, b) in enumerate(zip(word, own[0])) if a != b)
    rows = []
    for r in own:  # [start, prompt, name . end, padding]
        rows.append((r[:start] + [r[start]] * CTX + r[name:])[:len(r)])
    ctx = formula("prompt", [CTX, width]).requires_grad_()
    hook = embedding.register_forward_hook(
        lambda module, args, y: torch.cat([y[:, :start], ctx.expand(len(y), -1, -1), y[:, start + CTX:]], 1))
    prompted = text(torch.tensor(rows))
    hook.remove()
    scale = state["logit_scale"].exp().reshape(())
    logits = scale * F.normalize(features.detach(), dim=-1) @ F.normalize(prompted, dim=-1).T
    loss = F.cross_entropy(logits, torch.tensor(LABELS))
    loss.backward()
    out.update(prompts=sketch(prompted), loss=loss.item(), gradient=sketch(ctx.grad), scale=scale.item())
    if state.get("logit_bias") is not None:
        out["bias"] = state["logit_bias"].item()
    return out


# --- OpenCLIP and timm ---

VOCABULARIES = [("SigLIP2", "gemma"), ("SigLIP", "t5"), ("roberta", "roberta"), ("bert", "bert"), ("xlm-v", "xlm"), ("mt5", "t5"), ("nllb", "t5")]


def tokenizer_of(text_cfg):
    """open_clip's tokenizer of a text_cfg over a vocabulary of the tests: the tokenizer, the vocabulary's path, its size, start tokens, end token."""
    import open_clip.tokenizer as oct
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    name, kwargs = text_cfg.get("hf_tokenizer_name"), text_cfg.get("tokenizer_kwargs") or {}
    context = text_cfg.get("context_length", 77)
    if not name:
        with tempfile.NamedTemporaryFile(suffix=".gz") as f:
            f.write(gzip.compress(open(MERGES, "rb").read().rstrip(b"\n")))
            f.flush()
            tok = oct.SimpleTokenizer(bpe_path=f.name, context_length=context, **kwargs)
        return tok, MERGES, tok.vocab_size, 1, tok.eot_token_id
    kind = next(v for k, v in VOCABULARIES if k in name)
    path = ROBERTA if kind == "roberta" else f"{FILES}/{kind}"
    named = {"bert": dict(pad_token="[PAD]", sep_token="[SEP]", cls_token="[CLS]", unk_token="[UNK]", mask_token="[MASK]"),
             "gemma": dict(pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"),
             "roberta": dict(pad_token="<pad>", eos_token="</s>", sep_token="</s>", bos_token="<s>", cls_token="<s>"),
             }.get(kind, dict(pad_token="</s>" if kind == "t5" else "<pad>", eos_token="</s>", unk_token="<unk>"))
    fast = PreTrainedTokenizerFast(tokenizer_file=f"{path}/tokenizer.json", **named)
    own, AutoTokenizer.from_pretrained = AutoTokenizer.from_pretrained, lambda *a, **k: fast
    tok = oct.HFTokenizer(name, context_length=context, **kwargs)
    AutoTokenizer.from_pretrained = own
    start = fast("x").input_ids[0] in (fast.cls_token_id, fast.bos_token_id)
    return tok, path, len(fast), int(start), fast.eos_token_id if fast.eos_token_id is not None else fast.sep_token_id


def small(name, cfg):
    """A configuration with sizes that tests can afford."""
    cfg = copy.deepcopy(cfg)
    v, t = cfg["vision_cfg"], cfg["text_cfg"]
    if "multimodal_cfg" in cfg:  # names alone are asked of these
        return cfg
    size, patch = v.get("image_size", 224), v.get("patch_size", 16) or 16
    if "timm_model_name" in v:
        m = re.search(r"_patch(\d+)_", v["timm_model_name"])
        patch = int(m.group(1)) if m else 16
        v["image_size"] = 2 * patch + (2 if size % patch else 0)
    elif isinstance(v.get("layers", 12), list):
        v.update(width=8, layers=[1, 2, 1, 1], image_size=64, head_width=v.get("head_width", 64))
    else:
        heads = max(2, min(3, v.get("width", 768) // v.get("head_width", 64)))
        v.update(width=8 * heads, head_width=8, layers=2, patch_size=4, image_size=12 + (2 if size % patch else 0))
    if "hf_model_name" not in t:
        wide = t.get("proj_type") == "none"
        t.update(width=16, heads=2, layers=2)
        if not wide:
            cfg["embed_dim"] = 10
    else:
        cfg["embed_dim"] = 10
    return cfg


class TimmSize:
    """Makes timm build image towers of one block for images of a size."""

    def __init__(self, size, **more):
        self.more = dict(img_size=size, depth=1, **more)

    def __enter__(self):
        import timm
        self.own = timm.create_model

        def create(name, **kwargs):
            try:
                return self.own(name, **{**kwargs, **self.more})
            except Exception:  # other towers have no such arguments
                return self.own(name, **kwargs)
        timm.create_model = create

    def __exit__(self, *_):
        import timm
        timm.create_model = self.own


def huggingface_text(t):
    """The configuration of a text tower of transformers, as the Hub has it, with one block and a small vocabulary."""
    import transformers as tr
    name = t["hf_model_name"]
    large = dict(hidden_size=1024, num_attention_heads=16, intermediate_size=4096) if "large" in name else {}
    one = dict(num_hidden_layers=1, vocab_size=600, layer_norm_eps=1e-5, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1,
               bos_token_id=0, eos_token_id=2)
    if "mt5" in name:
        return tr.MT5Config(num_layers=1, num_decoder_layers=1, vocab_size=100)
    if "nllb" in name:
        return tr.M2M100Config(encoder_layers=1, decoder_layers=1, vocab_size=100)
    if "bert-base" in name and "roberta" not in name:
        return tr.BertConfig(num_hidden_layers=1, vocab_size=900, pad_token_id=2)
    return (tr.XLMRobertaConfig if "xlm" in name else tr.RobertaConfig)(**one, **large)


def build(cfg, device, side=None, **timm_size):
    import open_clip.coca_model as coca
    from open_clip.model import CLIP, CustomTextCLIP
    from transformers import AutoConfig, AutoModel
    cfg = copy.deepcopy(cfg)
    v, t = cfg["vision_cfg"], cfg["text_cfg"]
    custom = cfg.pop("custom_text", False) or "hf_model_name" in t
    own = AutoConfig.from_pretrained
    if "hf_model_name" in t:
        config = huggingface_text(t)
        for k, value in (side or {}).get("config.json", {}).items():
            setattr(config, k, value)
        t["hf_model_pretrained"] = False
        AutoConfig.from_pretrained = lambda *a, **k: config
    try:
        with torch.device(device), TimmSize(v["image_size"], **timm_size):
            if not custom:
                return CLIP(**cfg)
            if "multimodal_cfg" in cfg:
                return coca.CoCa(**cfg)
            return CustomTextCLIP(**cfg)
    finally:
        AutoConfig.from_pretrained = own


def supported(model):
    """Whether the outputs are stored: not of towers that are refused by their name or kind, which cost memory and time."""
    from open_clip.timm_model import TimmModel
    inner = getattr(model, "text", model)
    return not (isinstance(model.visual, TimmModel) and timm_reason(model.visual.trunk)) and not hasattr(model, "text_decoder") and (
        not hasattr(inner, "pooler") or hasattr(inner.transformer, "embeddings"))


def openclip(library, name, cfg, side=None, refused=False, **more):
    entry = dict(library=library, name=name, files={"open_clip_config.json": dict(model_cfg=cfg, preprocess_cfg=dict(
        mean=[0.5] * 3, std=[0.5] * 3, interpolation="bicubic", resize_mode="squash")), **(side or {})})
    tok, path, rows, start, eot = tokenizer_of(cfg["text_cfg"])
    entry["vocabulary"], entry["files"] = path, copy.deepcopy(entry["files"])
    t = cfg["text_cfg"]
    if "hf_model_name" not in t:
        t["vocab_size"] = entry["files"]["open_clip_config.json"]["model_cfg"]["text_cfg"]["vocab_size"] = rows
        if t.get("pool_type") == "eos":
            t["eos_id"] = entry["files"]["open_clip_config.json"]["model_cfg"]["text_cfg"]["eos_id"] = eot
    if refused:
        entry["tensors"] = [["logit_scale", []]]
        return entry
    with_meta = build(cfg, "meta", side, **more)
    entry["tensors"] = tensors(with_meta)
    if not supported(with_meta):
        entry["tensors"] = [[n, []] for n, _ in entry["tensors"]]
        return entry
    model = filled(build(cfg, "cpu", side, **more))
    inner = getattr(model, "text", model)
    words = inner.transformer.embeddings.word_embeddings if hasattr(inner, "pooler") else inner.token_embedding
    text = model.encode_text
    v = cfg["vision_cfg"]
    entry["want"] = measured(model.encode_image, text, words, tok, start, v["image_size"], words.weight.shape[1], model.state_dict())
    return entry


def open_clip_entries():
    import open_clip
    for path in sorted(glob.glob(os.path.join(os.path.dirname(open_clip.__file__), "model_configs", "*.json"))):
        name = os.path.basename(path)[:-5]
        with open(path) as f:
            cfg = json.load(f)
        yield name, lambda cfg=cfg, name=name: openclip("open_clip", name, native(name, small(name, cfg)))


def native(name, cfg):
    """Features as wide as the image tower of timm, where it has no projection."""
    v, t = cfg["vision_cfg"], cfg["text_cfg"]
    if "timm_model_name" in v and v.get("timm_proj") in ("none", "") and not v.get("timm_pool") in ("abs_attn", "rot_attn"):
        import timm
        with torch.device("meta"):
            cfg["embed_dim"] = timm.create_model(v["timm_model_name"]).num_features
    if t.get("proj_type") == "none":
        t.update(width=cfg["embed_dim"], heads=cfg["embed_dim"] // 64, layers=1)
    return cfg


# What plain vision transformers of timm are made of.
PLAIN = {"VisionTransformer", "PatchEmbed", "Conv2d", "Identity", "Dropout", "Sequential", "Block", "LayerNorm", "Attention", "Linear", "Mlp", "GELU", "GELUTanh",
         "QuickGELU", "LayerScale", "AttentionPoolLatent"}
ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu"}


def timm_reason(m):
    """What an image tower of timm has that the product has no place for; None where there is nothing."""
    kinds = [type(x).__name__ for x in m.modules()]
    if getattr(m, "rope", None) is not None:
        return "rotary positions"
    if "RelPos" in kinds[0]:
        return "relative positions"
    if kinds[0] != "VisionTransformer":  # another family, or blocks of another kind
        return f"blocks of another kind ({kinds[0]})"
    if "PatchEmbed" not in kinds:
        return "a convolutional stem"
    if m.reg_token is not None:
        return "register tokens"
    others = [k for k in kinds if k not in PLAIN]
    if others:
        return f"layers of another kind ({others[0]})"
    a = m.blocks[0].attn
    if a.qkv.bias is None:
        return "no biases of queries, keys and values"
    if m.cls_token is not None and (m.no_embed_class or m.pool_include_prefix):
        return "a class token without position, or within the average"
    if type(m.norm).__name__ == "Identity" and type(m.fc_norm).__name__ == "Identity":
        return "no norm behind the last block"
    if any(type(x).__name__ != "Identity" for x in (a.q_norm, a.k_norm, a.norm, m.patch_embed.norm)):
        return "further norms"
    return None


def timm_table():
    """Writes models/checkpoint/timm.json: width, heads, activation and epsilon by name, and why other names are refused."""
    import timm
    exact, refused = {}, {}
    for name in timm.list_models("vit_*"):
        with torch.device("meta"):
            m = timm.create_model(name)
        reason = timm_reason(m)
        if reason:
            refused.setdefault(reason, []).append(name)
        else:
            b = m.blocks[0]
            exact[name] = dict(Width=m.embed_dim, Heads=b.attn.num_heads, Activation=ACTIVATIONS[type(b.mlp.act).__name__], Epsilon=b.norm1.eps)
    with open("models/checkpoint/timm.json", "w", encoding="utf-8") as f:
        rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(v)}" for n, v in exact.items())
        reasons = ",\n".join(f"  {json.dumps(r)}: {json.dumps(n)}" for r, n in refused.items())
        f.write('{\n "Exact": {\n' + rows + '\n },\n "Refused": {\n' + reasons + "\n }\n}\n")
    print(len(exact), "towers of timm are plain,", sum(map(len, refused.values())), "are not")


TEXT = dict(context_length=24, vocab_size=1514, width=16, heads=2, layers=2)
VISION = dict(image_size=12, patch_size=4, width=24, head_width=8, layers=2)


def timm_entries():
    import timm
    for name in timm.list_models("vit_*"):
        cfg = dict(embed_dim=10, vision_cfg=dict(timm_model_name=name, timm_model_pretrained=False, timm_pool="", timm_proj="linear", image_size=224),
                   text_cfg=TEXT)
        m = re.search(r"_(\d{3})$", name)
        cfg["vision_cfg"]["image_size"] = int(m.group(1)) if m else 224
        yield name, lambda name=name, cfg=cfg: openclip("timm", name, small(name, cfg))


def variants():
    def native_vit(**v):
        return dict(embed_dim=10, vision_cfg={**VISION, **v}, text_cfg=TEXT)

    def native_text(**t):
        return dict(embed_dim=10, vision_cfg=VISION, text_cfg={**TEXT, **t})

    def trunk(name, size, **v):
        return dict(embed_dim=10, vision_cfg=dict(timm_model_name=name, image_size=size, **v), text_cfg=TEXT)

    def bert(side=None, **t):
        return dict(embed_dim=10, vision_cfg=VISION, text_cfg=t), side

    accepted = {
        "average pooling": native_vit(pool_type="avg"), "norm behind the pooling": native_vit(pool_type="avg", final_ln_after_pool=True),
        "norm behind the token": native_vit(final_ln_after_pool=True), "no first norm": native_vit(no_ln_pre=True),
        "layer scale": native_vit(ls_init_value=0.1), "wider feed-forward layers": native_vit(mlp_ratio=4.9231),
        "patches that leave a margin": native_vit(image_size=14), "epsilon of images": native_vit(norm_kwargs=dict(eps=1e-2)),
        "tanh GELU of images": native_vit(act_kwargs=dict(approximate="tanh")),
        "quick GELU": dict(native_vit(), quick_gelu=True), "custom text": dict(native_vit(), custom_text=True),
        "a bias of the logits": dict(native_vit(), init_logit_bias=-10, init_logit_scale=2.3),
        "a scale of one row": dict(native_vit(), nonscalar_logit_scale=True),
        "epsilon of texts": native_text(norm_kwargs=dict(eps=1e-2)), "tanh GELU of texts": native_text(act_kwargs=dict(approximate="tanh")),
        "end token by id": native_text(pool_type="eos"), "first token": native_text(pool_type="first"),
        "last token": native_text(pool_type="last", no_causal_mask=True), "no causal mask": native_text(no_causal_mask=True),
        "a bias of the text's projection": dict(native_text(proj_bias=True), custom_text=True),
        "layer scale of texts": native_text(ls_init_value=0.1), "canonical texts": native_text(tokenizer_kwargs=dict(clean="canonicalize")),
        "capitals": native_text(tokenizer_kwargs=dict(clean="whitespace")),
        "BERT's vocabulary": native_text(hf_tokenizer_name="bert-base-uncased", pool_type="last", no_causal_mask=True),
        "BERT's vocabulary without separator": native_text(hf_tokenizer_name="bert-base-uncased", pool_type="last", no_causal_mask=True,
                                                           tokenizer_kwargs=dict(strip_sep_token=True)),
        "map pooling beside a class token": trunk("vit_base_patch16_224", 32, timm_pool="map", timm_proj=None),
        "map pooling without projection": dict(trunk("vit_base_patch16_clip_224", 32, timm_pool="map", timm_proj="none"), embed_dim=768),
        "token of timm": trunk("vit_base_patch32_clip_224", 64, timm_pool="token", timm_proj="linear", timm_proj_bias=True),
        "average of timm": trunk("vit_small_patch16_224", 32, timm_pool="avg", timm_proj="linear"),
        "average of timm in the head": trunk("vit_small_patch16_224", 32, timm_pool="avg", timm_proj=None),
        "default pooling of timm": trunk("vit_small_patch16_224", 32),
        "timm with patches that leave a margin": trunk("vit_small_patch14_dinov2", 30, timm_pool="token"),
    }
    for name, cfg in accepted.items():
        yield name, lambda name=name, cfg=cfg: openclip("variant", name, cfg)
    roberta = dict(hf_model_name="roberta-base", hf_tokenizer_name="roberta-base", context_length=24)
    of_bert = dict(hf_model_name="bert-base-uncased", hf_tokenizer_name="bert-base-uncased", context_length=24)
    tiny_bert = {"config.json": dict(model_type="bert", hidden_size=24, num_attention_heads=4, intermediate_size=40, num_hidden_layers=2, vocab_size=900,
                                     max_position_embeddings=40, pad_token_id=2)}
    of_config = dict(model_type="roberta", hidden_size=24, num_attention_heads=4, intermediate_size=40, num_hidden_layers=2, vocab_size=600, layer_norm_eps=1e-5,
                     hidden_act="gelu", max_position_embeddings=40, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    towers = {
        "RoBERTa, mean, two layers": bert(**roberta, hf_proj_type="mlp", hf_pooler_type="mean_pooler"),
        "RoBERTa with config.json": bert({"config.json": of_config}, **{**roberta, "hf_model_name": "somebody/roberta-small"}, hf_proj_type="linear"),
        "BERT, first token": bert(tiny_bert, **of_bert, hf_proj_type="linear", hf_pooler_type="cls_last_hidden_state_pooler"),
        "BERT, pooling layer": bert(tiny_bert, **of_bert, hf_proj_type="mlp", hf_pooler_type="cls_pooler"),
        "BERT, default pooling": bert(tiny_bert, **of_bert, hf_pooler_type=None),
    }
    for name, (cfg, side) in towers.items():
        yield name, lambda name=name, cfg=cfg, side=side: openclip("variant", name, cfg, side)
    refused = {
        "an unknown field of images": native_vit(rope=True), "an unknown field of texts": native_text(depth_scale=2),
        "an unknown field of the model": dict(native_vit(), matryoshka=[5]), "an unknown pooling": native_vit(pool_type="none"),
        "an unknown text pooling": native_text(pool_type="mean"), "an attention pooling": native_vit(attentional_pool=True),
        "sines": native_vit(pos_embed_type="sin_cos_2d"), "a class token of texts": native_text(embed_cls=True),
        "norms of queries": native_vit(qk_norm=True), "cosine attention": native_text(scaled_cosine_attn=True),
        "scaled heads": native_vit(scale_heads=True), "a norm within attention": native_vit(scale_attn_inner=True),
        "a norm behind attention": native_text(scale_attn=True), "a norm of feed-forward layers": native_vit(scale_fc=True),
        "an unknown argument of activations": native_vit(act_kwargs=dict(inplace=True, beta=2)),
        "an unknown argument of norms": native_vit(norm_kwargs=dict(eps=1e-5, elementwise_affine=False)),
        "clips": native_text(hf_tokenizer_name="bert-base-uncased", tokenizer_mode="clips"),
        "an unknown cleaning": native_text(tokenizer_kwargs=dict(clean="stem")),
        "an unknown argument of tokenizers": native_text(hf_tokenizer_name="bert-base-uncased", tokenizer_kwargs=dict(language="de")),
        "a name of timm that will come": trunk("vit_base_patch16_new_224", 32), "a pooling of maxima": trunk("vit_small_patch16_224", 32, timm_pool="max"),
        "a rotary tower": trunk("vit_base_patch16_rope_224", 32),
    }
    for name, cfg in refused.items():
        yield name, lambda name=name, cfg=cfg: refusal(name, cfg)


def refusal(name, cfg):
    """A configuration with the tensors of a model that can be read, which is to be refused by what the configuration says."""
    plain = dict(embed_dim=10, vision_cfg=dict(VISION), text_cfg=dict(TEXT))
    if "timm_model_name" in cfg["vision_cfg"]:
        plain["vision_cfg"] = dict(timm_model_name="vit_small_patch16_224", image_size=32)
    entry = openclip("variant", name, plain)
    del entry["want"]
    entry["files"]["open_clip_config.json"]["model_cfg"] = cfg
    return entry


# --- transformers ---

def simple_transformers(name, config, model, tokenizer, start, tokens, size):
    """A folder of transformers: config.json as it writes it, and what the model computes."""
    with tempfile.TemporaryDirectory() as d:
        config.save_pretrained(d)
        with open(f"{d}/config.json") as f:
            stored = json.load(f)
    stored["transformers_version"] = "5"
    model = filled(model)
    features = lambda x: getattr(x, "pooler_output", x)
    vision = dict(do_resize=True, size=dict(height=size, width=size), do_center_crop=False, image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=3)
    entry = dict(library="transformers", name=name, files={"config.json": stored, "preprocessor_config.json": vision}, vocabulary=tokenizer,
                 tensors=tensors(model))
    words = [m for n, m in model.named_modules() if n.endswith(("token_embedding", "word_embeddings"))][0]
    entry["want"] = measured(lambda p: features(model.get_image_features(p)), lambda i: features(text_features(model, i, tokens)), words, tokens, start, size,
                             words.weight.shape[1], model.state_dict())
    return entry


def text_features(model, ids, tokens):
    mask = getattr(tokens, "mask", None)
    return model.get_text_features(input_ids=ids, attention_mask=mask(ids)) if mask else model.get_text_features(input_ids=ids)


def transformers_entries():
    import transformers as tr
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
    text = dict(hidden_size=16, intermediate_size=30, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=24)
    vision = dict(hidden_size=24, intermediate_size=50, num_hidden_layers=2, num_attention_heads=3, image_size=12, patch_size=4)
    made = {
        "clip": lambda **v: openai_like("clip", tr.CLIPConfig, tr.CLIPModel, text, {**vision, **v}),
        "metaclip_2": lambda: openai_like("metaclip_2", tr.MetaClip2Config, tr.MetaClip2Model, text, vision),
        "siglip": lambda **v: siglip(tr, text, {**vision, **v}),
        "chinese_clip": lambda: chinese(tr, text, vision),
    }
    yield "clip, patches that leave a margin", lambda: dict(made["clip"](image_size=14), name="clip, patches that leave a margin")
    yield "siglip, patches that leave a margin", lambda: dict(made["siglip"](image_size=14), name="siglip, patches that leave a margin")
    for kind, names in MODEL_MAPPING_NAMES.items():
        cls = None
        for n in names if isinstance(names, (list, tuple)) else [names]:
            try:
                c = getattr(tr, n)
                if hasattr(c, "get_image_features") and hasattr(c, "get_text_features"):
                    cls = c
            except Exception:
                continue
        if cls is None:
            continue
        if kind in made:
            yield kind, made[kind]
        else:
            yield kind, lambda kind=kind: dict(library="transformers", name=kind, vocabulary=MERGES, tensors=[["logit_scale", []]],
                                               files={"config.json": dict(model_type=kind)})


def openai_like(kind, config, model, text, vision):
    from open_clip.tokenizer import SimpleTokenizer
    tok, path, rows, start, eot = tokenizer_of(dict(context_length=24))
    cfg = config(text_config=dict(**text, vocab_size=rows, bos_token_id=eot - 1, eos_token_id=eot), vision_config=vision, projection_dim=10)
    return simple_transformers(kind, cfg, model(cfg), path, start, tok, vision["image_size"])


def siglip(tr, text, vision):
    from transformers import PreTrainedTokenizerFast
    fast = PreTrainedTokenizerFast(tokenizer_file=f"{FILES}/t5/tokenizer.json", pad_token="</s>", eos_token="</s>", unk_token="<unk>")
    cfg = tr.SiglipConfig(text_config=dict(**text, vocab_size=len(fast), projection_size=24), vision_config=vision)
    ids = lambda texts: fast(texts, padding="max_length", max_length=24, return_tensors="pt").input_ids
    return simple_transformers("siglip", cfg, tr.SiglipModel(cfg), f"{FILES}/t5", 0, ids, vision["image_size"])


def chinese(tr, text, vision):
    from transformers import PreTrainedTokenizerFast
    fast = PreTrainedTokenizerFast(tokenizer_file=f"{FILES}/bert/tokenizer.json", pad_token="[PAD]", sep_token="[SEP]", cls_token="[CLS]")
    cfg = tr.ChineseCLIPConfig(text_config=dict(**text, vocab_size=len(fast), pad_token_id=fast.pad_token_id), vision_config=vision, projection_dim=10)
    ids = lambda texts: fast(texts, padding="max_length", max_length=24, return_tensors="pt").input_ids
    ids.mask = lambda i: (i != fast.pad_token_id).long()
    return simple_transformers("chinese_clip", cfg, tr.ChineseCLIPModel(cfg), f"{FILES}/bert", 1, ids, vision["image_size"])


def main():
    timm_table()
    patterns = [re.compile(p) for p in sys.argv[1:]]
    out, old = [], []
    if patterns and os.path.exists(OUT):
        with gzip.open(OUT, "rt") as f:
            old = json.load(f)["entries"]
    for library, entries in (("open_clip", open_clip_entries()), ("timm", timm_entries()), ("variant", variants()), ("transformers", transformers_entries())):
        for name, make in entries:
            kept = [e for e in old if e["library"] == library and e["name"] == name]
            if patterns and not any(p.search(f"{library}/{name}") for p in patterns) and kept:
                out += kept
                continue
            entry = make()
            print(library, name, "outputs" if "want" in entry else "names", flush=True)
            out.append(entry)
        save(out)
    print(len(out), "entries,", os.path.getsize(OUT), "bytes")


def save(out):
    data = json.dumps(dict(texts=TEXTS, classes=CLASSES, labels=LABELS, entries=out), separators=(",", ":"), sort_keys=True)
    with open(OUT, "wb") as f:
        f.write(gzip.compress(data.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
