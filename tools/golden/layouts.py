"""Exported CLIPs in the layouts that people have on disk, without any bundle.json, and PyTorch's features and gradients.

    python3 tools/golden/layouts.py [FOLDER]

Writes models/bundle/exported/testdata/layouts: a folder for each layout that the table in models/bundle/exported/layouts.go
has, with names, inputs and outputs as in the exports that go by them. Needs PyTorch, and transformers for two of them; tried
with PyTorch 1.13 and transformers 4.30.
"""
import collections
import json
import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
from torch import nn

import checkpoint as ck
import exported_nets
import exported_onnx
from exported_towers import CONTEXT, EOT, IMAGE, JOINT, SOS, VOCAB, WIDTH, TextTower, golden, whole

OUT = pathlib.Path(__file__).parents[2] / "models/bundle/exported/testdata/layouts"
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def write(net, args, path, inputs, outputs, axes=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(net.eval(), args, str(path), input_names=inputs, output_names=outputs, opset_version=14, dynamic_axes=axes or {})


def folder(name, tokens="."):
    """A new folder with the vocabulary where the layout has it."""
    path = OUT / name
    shutil.rmtree(path, ignore_errors=True)
    (path / tokens).mkdir(parents=True)
    src = pathlib.Path(__file__).parents[2] / "models/bundle/converted/testdata/huggingface"
    for f in ("vocab.json", "merges.txt"):
        shutil.copy(src / f, path / tokens)
    return path


def dump(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def preprocess_cfg(**more):
    return dict({"size": [IMAGE, IMAGE], "mode": "RGB", "mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "shortest", "fill_color": 0}, **more)


class Unit(nn.Module):
    """Features of length one, of inputs in the element type that the export takes."""

    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, x):
        return F.normalize(self.tower(x), dim=-1)


class Levels(nn.Module):
    """Normalises uint8 pixels itself, with channels last or in front."""

    def __init__(self, tower, last):
        super().__init__()
        self.tower, self.last = tower, last
        self.register_buffer("mean", 255 * torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", 255 * torch.tensor(STD).view(1, 3, 1, 1))

    def forward(self, x):
        x = x.float()
        if self.last:
            x = x.permute(0, 3, 1, 2)
        return self.tower((x - self.mean) / self.std)


class Similar(nn.Module):
    """One file with the products of features, as openai/CLIP's forward gives them."""

    def __init__(self, text, image):
        super().__init__()
        self.text, self.image, self.logit_scale = text, image, nn.Parameter(torch.tensor(3.5))

    def forward(self, image, text):
        x, y = F.normalize(self.image(image), dim=-1), F.normalize(self.text(text), dim=-1)
        per_image = self.logit_scale.exp() * x @ y.t()
        return per_image, per_image.t()


class Bidirectional(TextTower):
    """Exports of CLIP-ONNX have lost the causal mask."""

    def __init__(self):
        super().__init__(False)
        self.mask.zero_()


class ImageTower(nn.Module):
    """OpenAI's vision transformer, with prompt tokens behind the patches in each block."""

    def __init__(self, width=12, heads=3, patch=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding, self.n = nn.Parameter(torch.randn(width)), (IMAGE // patch) ** 2 + 1
        self.positional_embedding = nn.Parameter(torch.randn(self.n, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList([Wide(width, heads) for _ in range(3)])
        self.proj = nn.Parameter(torch.randn(width, JOINT) * 0.5)

    def forward(self, x, *prompts):
        x = self.conv1(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding + torch.zeros(x.shape[0], 1, x.shape[-1]), x], 1) + self.positional_embedding
        x = self.ln_pre(x)
        for i, b in enumerate(self.blocks):
            if i < len(prompts):
                x = torch.cat([x[:, : self.n], prompts[i].expand(x.shape[0], *prompts[i].shape)], 1)
            x = b(x.transpose(0, 1)).transpose(0, 1)
        return self.ln_post(x[:, 0]) @ self.proj


class Wide(nn.Module):
    """A block with the exact GELU."""

    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads)
        self.c_fc, self.c_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class MeanTower(ImageTower):
    """A transformer that is not CLIP's: features are those of the mean token."""

    def forward(self, x, *prompts):
        x = self.conv1(x).flatten(2).permute(2, 0, 1)
        x = torch.cat([self.class_embedding + torch.zeros(1, x.shape[1], x.shape[-1]), x], 0) + self.positional_embedding[:, None]
        x = self.ln_pre(x)
        for i, b in enumerate(self.blocks):
            if i < len(prompts):
                x = torch.cat([x[: self.n], prompts[i][:, None].expand(-1, x.shape[1], -1)], 0)
            x = b(x)
        return self.ln_post(x.mean(0)) @ self.proj


def prompted(name, tower):
    """A folder whose image tower is a vision transformer, with features and gradients under prompts in two blocks."""
    torch.manual_seed(6)
    text, image = TextTower(False).eval(), tower().eval()
    for p in list(text.parameters()) + list(image.parameters()):
        if p.dim() < 2:
            p.data += torch.randn_like(p) * 0.3
    px, batch = torch.randn(2, 3, IMAGE, IMAGE), {0: "batch"}
    out = folder(name)
    write(image, (px,), out / "image.onnx", ["input"], ["output"], {"input": batch, "output": batch})
    write(text, (whole(),), out / "text.onnx", ["input"], ["output"], {"input": batch, "output": batch})
    golden(out, text, text, image)
    tokens = [torch.randn(2, 12).requires_grad_(), torch.randn(3, 12).requires_grad_()]
    y = F.normalize(image(px, *tokens), dim=-1)
    d = torch.randn(y.shape)
    (y * d).sum().backward()
    values = dict(pixels=px, tokens=tokens[0], deep=tokens[1], image=y, d=d, tokens_grad=tokens[0].grad,
                  deep_grad=tokens[1].grad)
    ck.write_safetensors(f"{out}/prompted.safetensors",
                         collections.OrderedDict((k, v.detach().contiguous()) for k, v in values.items()))


def towers(cls=TextTower, *args):
    torch.manual_seed(5)
    text = cls(*args).eval()
    return text, exported_onnx.spread(exported_nets.ClipResNet(JOINT))


def openai():
    ids, one, px = whole(), torch.tensor(whole()[:1]), torch.randn(1, 3, IMAGE, IMAGE)
    levels = torch.randint(0, 256, (2, 3, IMAGE, IMAGE)).float()
    batch = lambda *names: {n: {0: "batch"} for n in names}

    text, image = towers(TextTower, False)
    out = folder("immich", "textual")
    (out / "visual").mkdir()
    write(Unit(image), (px,), out / "visual/model.onnx", ["image"], ["embedding"])
    write(Unit(text), (one.int(),), out / "textual/model.onnx", ["text"], ["embedding"])
    dump(out / "visual/preprocess_cfg.json", preprocess_cfg())
    dump(out / "config.json", {"embed_dim": JOINT, "vision_cfg": {"image_size": IMAGE}, "text_cfg": {"context_length": CONTEXT, "vocab_size": VOCAB}})
    golden(out, text, text, image)

    out = folder("roboflow")
    write(image, (px,), out / "visual.onnx", ["input"], ["output"], batch("input", "output"))
    write(text, (ids.int(),), out / "textual.onnx", ["input"], ["output"], batch("input", "output"))
    golden(out, text, text, image)

    out = folder("lakera")
    write(image, (px,), out / "clip_image_model_vitb32.onnx", ["IMAGE"], ["IMAGE_EMBEDDING"], batch("IMAGE", "IMAGE_EMBEDDING"))
    write(text, (ids,), out / "clip_text_model_vitb32.onnx", ["TEXT"], ["TEXT_EMBEDDING"], batch("TEXT", "TEXT_EMBEDDING"))
    golden(out, text, text, image)

    out = folder("openai")
    write(Similar(text, image), (px, ids), out / "clip.onnx", ["IMAGE", "TEXT"], ["LOGITS_PER_IMAGE", "LOGITS_PER_TEXT"],
          {"IMAGE": {0: "images"}, "TEXT": {0: "texts"}})
    golden(out, text, text, image)

    out = folder("mobileclip")
    last = Levels(image, True)
    write(last, (levels[:1].permute(0, 2, 3, 1).byte(),), out / "mobileclip_s2_image_opset18_fp32.onnx", ["input"], ["output"])
    write(text, (one.int(),), out / "mobileclip_s2_text_opset18_fp32.onnx", ["input"], ["output"])
    golden(out, text, text, lambda x: last(x.permute(0, 2, 3, 1)), levels)

    out = folder("winml")
    front = Levels(image, False)
    write(front, (levels[:1].byte(),), out / "image-encoder.onnx", ["input"], ["output"], batch("input", "output"))
    write(text, (ids,), out / "text-encoder.onnx", ["input"], ["output"], batch("input", "output"))
    golden(out, text, text, front, levels)

    text, image = towers(Bidirectional)
    out = folder("clip-onnx")
    write(image, (px,), out / "clip_visual.onnx", ["input"], ["output"], batch("input", "output"))
    write(text, (ids,), out / "clip_textual.onnx", ["input"], ["output"], batch("input", "output"))
    golden(out, text, text, image)


def hugging_face():
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(5)
    text = CLIPTextModelWithProjection(CLIPTextConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=CONTEXT,
        projection_dim=JOINT, bos_token_id=SOS, eos_token_id=EOT, pad_token_id=EOT)).eval()
    image = CLIPVisionModelWithProjection(CLIPVisionConfig(
        hidden_size=12, intermediate_size=16, num_hidden_layers=2, num_attention_heads=3, image_size=IMAGE, patch_size=8, projection_dim=JOINT)).eval()
    for model in (text, image):
        for p in model.parameters():
            if p.dim() >= 2:
                p.data = torch.randn_like(p) * (0.5 if p.shape[0] > 100 else 0.7 / p[0].numel() ** 0.5)

    class Text(nn.Module):
        def __init__(self, m):
            super().__init__()
            self.m = m

        def forward(self, input_ids, attention_mask=None):
            y = self.m(input_ids=input_ids, attention_mask=attention_mask)
            return y.text_embeds, y.last_hidden_state

    class Image(nn.Module):
        def __init__(self, m):
            super().__init__()
            self.m = m

        def forward(self, pixel_values):
            y = self.m(pixel_values=pixel_values)
            return y.image_embeds, y.last_hidden_state

    ids, px = whole(), torch.randn(2, 3, IMAGE, IMAGE)
    mask = (torch.arange(CONTEXT)[None] <= ids.argmax(-1, keepdim=True)).long()
    both, first = {0: "batch_size", 1: "sequence_length"}, {0: "batch_size"}
    open_pixels = {0: "batch_size", 1: "num_channels", 2: "height", 3: "width"}
    config = {"model_type": "clip", "projection_dim": JOINT, "text_config": {"max_position_embeddings": CONTEXT}, "vision_config": {"image_size": IMAGE}}
    processor = {"do_resize": True, "size": {"shortest_edge": IMAGE}, "resample": 3, "do_center_crop": True, "crop_size": {"height": IMAGE, "width": IMAGE},
                 "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": MEAN, "image_std": STD}
    ref = lambda out: golden(out, text.text_model.embeddings, lambda i: text(input_ids=i).text_embeds, lambda p: image(pixel_values=p).image_embeds)

    out = folder("transformersjs")  # the same twice, the second time in half precision
    dump(out / "config.json", config), dump(out / "preprocessor_config.json", processor)
    for suffix in ("", "_fp16"):
        write(Image(image), (px,), out / f"onnx/vision_model{suffix}.onnx", ["pixel_values"], ["image_embeds", "last_hidden_state"], {"pixel_values": open_pixels})
        write(Text(text), (ids,), out / f"onnx/text_model{suffix}.onnx", ["input_ids"], ["text_embeds", "last_hidden_state"], {"input_ids": both})
        half(out / f"onnx/text_model{suffix}.onnx", suffix), half(out / f"onnx/vision_model{suffix}.onnx", suffix)
    ref(out)

    out = folder("optimum")
    dump(out / "config.json", config), dump(out / "preprocessor_config.json", processor)
    write(Image(image), (px,), out / "vision_model.onnx", ["pixel_values"], ["image_embeds", "last_hidden_state"], {"pixel_values": open_pixels})
    write(Text(text), (ids, mask), out / "text_model.onnx", ["input_ids", "attention_mask"], ["text_embeds", "last_hidden_state"], {"input_ids": both, "attention_mask": both})
    ref(out)

    out = folder("usls")
    write(Image(image), (px[:1],), out / "vit-b16-visual.onnx", ["images"], ["embedding", "hidden"])
    write(Text(text), (ids[:1],), out / "vit-b16-textual.onnx", ["tokens"], ["embedding", "hidden"])
    ref(out)

    out = folder("fixed")  # for three images and two texts, under names of their own
    write(Image(image), (torch.randn(3, 3, IMAGE, IMAGE),), out / "image.onnx", ["images"], ["embedding", "hidden"])
    write(Text(text), (ids, mask), out / "text.onnx", ["tokens", "attention_mask"], ["embedding", "hidden"])
    ref(out)

    out = folder("quantised")  # weights of 4 bits (in blocks) and of 8 bits; and a text tower that rounds activations
    for model in (text, image):
        for m in model.modules():
            if isinstance(m, nn.Linear):
                m.weight.data = four_bits(m.weight.data.numpy())[0]
    table = text.text_model.embeddings.token_embedding.weight
    step = table.data.abs().max() / 127
    table.data = (table.data / step).round() * step
    dump(out / "config.json", config), dump(out / "preprocessor_config.json", processor)
    for name, net, args, names, axes in (("vision_model", Image(image), (px,), ["pixel_values"], {"pixel_values": open_pixels}),
                                         ("text_model", Text(text), (ids,), ["input_ids"], {"input_ids": both})):
        path = out / "onnx" / f"{name}_q4.onnx"
        write(net, args, path, names, [("image" if "v" in name else "text") + "_embeds", "last_hidden_state"], axes)
        in_four_bits(path)
    ref(out)
    write(Text(text), (ids,), out / "onnx/text_model_quantized.onnx", ["input_ids"], ["text_embeds", "last_hidden_state"], {"input_ids": both})
    rounded(out / "onnx/text_model_quantized.onnx")
    write(Text(text), (ids,), out / "onnx/text_model_int8.onnx", ["input_ids"], ["text_embeds", "last_hidden_state"], {"input_ids": both})
    eight_bits(out / "onnx/text_model_int8.onnx", step.item())

    out = folder("fastembed", "text")  # a folder for each tower
    (out / "image").mkdir()
    dump(out / "image/preprocessor_config.json", processor)
    write(Image(image), (px,), out / "image/model.onnx", ["pixel_values"], ["image_embeds", "last_hidden_state"], {"pixel_values": first})
    write(Text(text), (ids, mask), out / "text/model.onnx", ["input_ids", "attention_mask"], ["text_embeds", "last_hidden_state"], {"input_ids": both, "attention_mask": both})
    ref(out)


def four_bits(w, block=16):
    """Weights [N,K] rounded to -7..7 times a scale for each block of K, the numbers, and the scales."""
    import numpy as np
    n, k = w.shape
    blocks = -(-k // block)
    padded = np.zeros((n, blocks * block), np.float32)
    padded[:, :k] = w
    padded = padded.reshape(n, blocks, block)
    scale = np.maximum(np.abs(padded).max(-1, keepdims=True), 1e-12) / np.float32(7)
    q = np.rint(padded / scale)
    return torch.tensor((q * scale).reshape(n, -1)[:, :k]), q.astype(np.int64) + 8, scale.astype(np.float32)


def in_four_bits(path, block=16):
    """Products with constant matrices become MatMulNBits."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
    m = onnx.load(str(path))
    weights = {t.name: t for t in m.graph.initializer}
    for i, node in enumerate(m.graph.node):
        if node.op_type == "MatMul" and node.input[1] in weights:
            w = numpy_helper.to_array(weights[node.input[1]])
            _, q, scale = four_bits(np.ascontiguousarray(w.T), block)
            packed = (q[..., 0::2] | q[..., 1::2] << 4).astype(np.uint8)
            name = node.input[1]
            m.graph.initializer.extend([numpy_helper.from_array(packed, name + "_q4"), numpy_helper.from_array(scale.reshape(-1), name + "_scales")])
            node.CopyFrom(helper.make_node("MatMulNBits", [node.input[0], name + "_q4", name + "_scales"], node.output, name=node.name,
                                           domain="com.microsoft", K=w.shape[0], N=w.shape[1], bits=4, block_size=block))
    finish(m, path)


def rounded(path):
    """The first product becomes one of integers, as dynamic quantisation leaves them."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
    m = onnx.load(str(path))
    weights = {t.name: t for t in m.graph.initializer}
    node = next(n for n in m.graph.node if n.op_type == "MatMul" and n.input[1] in weights)
    w, at = numpy_helper.to_array(weights[node.input[1]]), list(m.graph.node).index(node)
    scale = np.float32(np.abs(w).max() / 127)
    x, y = node.input[0], node.output[0]
    m.graph.initializer.extend([numpy_helper.from_array(np.rint(w / scale).astype(np.int8), "w_q"), numpy_helper.from_array(scale, "w_scale")])
    new = [helper.make_node("DynamicQuantizeLinear", [x], ["x_q", "x_scale", "x_zero"], name="round"),
           helper.make_node("MatMulInteger", ["x_q", "w_q", "x_zero"], ["y_int"]), helper.make_node("Cast", ["y_int"], ["y_float"], to=1),
           helper.make_node("Mul", ["x_scale", "w_scale"], ["both_scales"]), helper.make_node("Mul", ["y_float", "both_scales"], [y])]
    nodes = list(m.graph.node)
    del m.graph.node[:]
    m.graph.node.extend(nodes[:at] + new + nodes[at + 1:])
    finish(m, path)


def eight_bits(path, step):
    """The table of the tokens becomes integers around 128 and their scale."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
    m = onnx.load(str(path))
    table = next(t for t in m.graph.initializer if list(t.dims) == [VOCAB, WIDTH])
    q = np.rint(numpy_helper.to_array(table) / np.float32(step)).astype(np.int64)
    name = table.name
    m.graph.initializer.remove(table)
    m.graph.initializer.extend([numpy_helper.from_array((q + 128).astype(np.uint8), "table_q"), numpy_helper.from_array(np.float32(step), "table_scale"),
                                numpy_helper.from_array(np.uint8(128), "table_zero")])
    nodes = [helper.make_node("DequantizeLinear", ["table_q", "table_scale", "table_zero"], [name])] + list(m.graph.node)
    del m.graph.node[:]
    m.graph.node.extend(nodes)
    finish(m, path)


def finish(m, path):
    """Drops initializers that nothing reads."""
    import onnx
    read = {i for n in m.graph.node for i in n.input}
    kept = [t for t in m.graph.initializer if t.name in read]
    del m.graph.initializer[:]
    m.graph.initializer.extend(kept)
    if not any(o.domain == "com.microsoft" for o in m.opset_import):
        m.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(m, str(path))


def half(path, suffix):
    """Stores weights in half precision and casts them, inputs and outputs staying float32, as converters of float16 leave them."""
    if not suffix:
        return
    import numpy as np
    import onnx
    from onnx import numpy_helper
    m = onnx.load(str(path))
    casts = []
    for t in m.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT:
            name, value = t.name, numpy_helper.to_array(t).astype(np.float16)
            t.CopyFrom(numpy_helper.from_array(value, name + "_half"))
            casts.append(onnx.helper.make_node("Cast", [name + "_half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = casts + list(m.graph.node)
    del m.graph.node[:]
    m.graph.node.extend(nodes)
    onnx.save(m, str(path))


def main():
    global OUT
    if len(sys.argv) > 1:
        OUT = pathlib.Path(sys.argv[1])
    openai()
    prompted("vit", ImageTower)
    prompted("mean", MeanTower)
    try:
        hugging_face()
    except ImportError as e:
        print(f"{e}: its layouts are left out")


if __name__ == "__main__":
    main()
