"""CLIP towers as people export them: folders with ONNX files and a short bundle.json, and PyTorch's features and gradients.

    python3 tools/golden/exported_towers.py DIR
    PROMPTFED_TEST_TOWERS=DIR go test -run ExportedTowers ./models/bundle/exported

With transformers: CLIPModel, CLIPTextModelWithProjection and CLIPVisionModelWithProjection, eager and sdpa attention, through
both of PyTorch's exporters and through optimum where it is installed. Without: towers written as in OpenAI's code, fed with
embeddings or token ids. Tried with PyTorch 1.13 alone, and with PyTorch 2.9, transformers 4.57 and optimum-onnx 0.1. The
vocabulary is that of models/bundle/converted/testdata/huggingface; ids of the class names below are its.
"""
import collections
import json
import pathlib
import shutil
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import checkpoint as ck
import exported_nets
import exported_onnx

warnings.filterwarnings("ignore")
VOCAB, SOS, EOT, FILLER, CONTEXT, WIDTH, JOINT, IMAGE = 530, 528, 529, 343, 32, 8, 6, 16
NAMES = {"cat": [66, 64, 339, 269], "the thing": [518, 513, 519, 269], "sea lion": [82, 68, 320, 75, 72, 525, 269]}
TEXTS = {"a photo of a cat.": [320, 79, 71, 78, 83, 334, 78, 325, 320, 66, 64, 339, 269], "the": [518]}
CTX = 4
MODERN = exported_onnx.MODERN


class TextTower(nn.Module):
    """OpenAI's, with the whole context or as many positions as there are tokens."""

    def __init__(self, cut):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCAB, WIDTH)
        self.positional_embedding = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.3)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.randn(WIDTH, JOINT) * 0.5)
        self.cut = cut
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1), persistent=False)

    def embedded(self, x, eot):
        n = x.shape[1]
        positions, mask = (self.positional_embedding[:n], self.mask[:n, :n]) if self.cut else (self.positional_embedding, self.mask)
        x = (x + positions).permute(1, 0, 2)
        for b in self.blocks:
            x = b(x, mask)
        x = self.ln_final(x.permute(1, 0, 2))
        return x[torch.arange(x.shape[0]), eot] @ self.text_projection

    def forward(self, ids):
        return self.embedded(self.token_embedding(ids), ids.argmax(dim=-1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2)
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False, attn_mask=mask)[0]
        h = self.c_fc(self.ln_2(x))
        return x + self.c_proj(h * torch.sigmoid(1.702 * h))


class FromEmbeddings(nn.Module):
    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, embeddings, eot):
        return F.normalize(self.tower.embedded(embeddings, eot), dim=-1)


class FromBoth(FromEmbeddings):
    def forward(self, embeddings, ids):
        return self.tower.embedded(embeddings, (ids == EOT).int().argmax(dim=-1))


class Int32(FromEmbeddings):
    def forward(self, ids):
        return self.tower(ids)


class Rows(nn.Module):
    """In place of a token embedding: rows that are given, whatever the ids."""

    def forward(self, ids):
        return self.rows


def sequences(table, ctx):
    """Embeddings and ids of all class prompts, [SOS prompt name . EOT] filled up with token 0."""
    emb, ids = [], []
    for name in NAMES.values():
        tail = name + [EOT] + [0] * (CONTEXT - 2 - CTX - len(name))
        ids.append([SOS] + [FILLER] * CTX + tail)
        emb.append(torch.cat([table[[SOS]], ctx, table[tail]]))
    return torch.stack(emb), torch.tensor(ids)


def whole():
    return torch.tensor([[SOS] + t + [EOT] + [0] * (CONTEXT - 2 - len(t)) for t in TEXTS.values()])


def golden(folder, holder, text, image, pixels=None):
    """holder.token_embedding is what looks tokens up; text(ids) and image(pixels) give features."""
    torch.manual_seed(11)
    lookup, ctx = holder.token_embedding, (torch.randn(CTX, WIDTH) * 0.5).requires_grad_()
    with torch.no_grad():
        sentences = text(whole())
    emb, ids = sequences(lookup.weight.detach(), ctx)
    holder.token_embedding = Rows()
    holder.token_embedding.rows = emb
    features = text(ids)
    holder.token_embedding = lookup
    c = torch.randn(features.shape)
    (F.normalize(features, dim=-1) * c).sum().backward()
    out = collections.OrderedDict(ctx=ctx, text=F.normalize(features, dim=-1), c=c, grad=ctx.grad, sentences=F.normalize(sentences, dim=-1))
    if image:
        pixels = (torch.randn(2, 3, IMAGE, IMAGE) if pixels is None else pixels.clone()).requires_grad_()
        y = F.normalize(image(pixels), dim=-1)
        d = torch.randn(y.shape)
        (y * d).sum().backward()
        out.update(pixels=pixels, image=y, d=d, pixels_grad=pixels.grad)
    ck.write_safetensors(f"{folder}/golden.safetensors", collections.OrderedDict((k, v.detach().float().contiguous()) for k, v in out.items()))


def folder(out, name, **manifest):
    path = pathlib.Path(out, name)
    path.mkdir(parents=True, exist_ok=True)
    src = pathlib.Path(__file__).parents[2] / "models/bundle/converted/testdata/huggingface"
    for f in ("vocab.json", "merges.txt"):
        shutil.copy(src / f, path)
    (path / "bundle.json").write_text(json.dumps(dict(manifest, name=name), indent=1) + "\n")
    return str(path)


def write(net, args, path, inputs, outputs, axes, opset=17, dynamo=False, **more):
    kw = dict(input_names=inputs, output_names=outputs, opset_version=opset, **more)
    try:
        if dynamo:
            dyn = tuple({a: torch.export.Dim.DYNAMIC for a in axes.get(n, {})} for n in inputs)
            torch.onnx.export(net, args, path, dynamo=True, external_data=False, verbose=False, dynamic_shapes=dyn, **kw)
            exported_onnx.anonymous(path)
        else:
            torch.onnx.export(net, args, path, dynamic_axes=axes, **kw, **({"dynamo": False} if MODERN else {}))
    except Exception as e:
        print(f"{path}: not exported: {str(e).strip().splitlines()[0][:150]}")


def openai(out):
    v = "".join(torch.__version__.split(".")[:2])
    image = exported_onnx.spread(exported_nets.ClipResNet(JOINT))
    px = torch.randn(3, 3, IMAGE, IMAGE)
    for cut in (False, True):
        torch.manual_seed(5)
        tower = TextTower(cut).eval()
        ids, one = whole(), {0: "n"}
        both = {0: "n", 1: "length"} if cut else one
        emb, eot = tower.token_embedding(ids).detach(), ids.argmax(-1)
        cases = {
            "emb": (FromEmbeddings(tower), (emb, eot), ["embeddings", "eot"], {"embeddings": both, "eot": one}),
            "both": (FromBoth(tower), (emb, ids), ["inputs_embeds", "input_ids"], {"inputs_embeds": both, "input_ids": both}),
            "ids": (tower, (ids,), ["text"], {"text": both}),
            "ids32": (Int32(tower), (ids.int(),), ["tokens"], {"tokens": both}),
            "fixed": (tower, (ids,), ["text"], {}),
        }
        for kind, (net, args, names, axes) in cases.items():
            for dynamo in (False, True) if MODERN else (False,):
                if kind == "fixed" and cut:
                    continue
                name = f"openai-{kind}-{'cut' if cut else 'whole'}-{v}-{'dynamo' if dynamo else 'torchscript'}"
                path = folder(out, name, **({"token_embedding": {"file": "tokens.safetensors", "tensor": "weight"}} if "emb" in names[0] else {}))
                if "emb" in names[0]:
                    ck.write_safetensors(f"{path}/tokens.safetensors", {"weight": tower.token_embedding.weight.detach()})
                write(net, args, f"{path}/text.onnx", names, ["features"], axes, 18 if dynamo else 14, dynamo)
                axes = {} if kind == "fixed" else {"image": {0: "n"}, "features": {0: "n"}}
                write(image, (px,), f"{path}/image.onnx", ["image"], ["features"], axes, 14 if MODERN else 13)
                golden(path, tower, tower, image)


def hugging_face(out):
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPTextModelWithProjection, CLIPVisionConfig, CLIPVisionModelWithProjection

    text = CLIPTextConfig(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                          max_position_embeddings=CONTEXT, projection_dim=JOINT, bos_token_id=SOS, eos_token_id=EOT, pad_token_id=EOT)
    vision = CLIPVisionConfig(hidden_size=12, intermediate_size=16, num_hidden_layers=2, num_attention_heads=3, image_size=IMAGE, patch_size=8, projection_dim=JOINT)

    class Text(nn.Module):
        def __init__(self, m, masked):
            super().__init__()
            self.m, self.masked = m, masked

        def forward(self, input_ids, attention_mask=None):
            return self.m(input_ids=input_ids, attention_mask=attention_mask, return_dict=True).text_embeds

    class Image(nn.Module):
        def __init__(self, m):
            super().__init__()
            self.m = m

        def forward(self, pixel_values):
            y = self.m(pixel_values=pixel_values, return_dict=True)
            return y.image_embeds, y.last_hidden_state

    for attention in ("eager", "sdpa"):
        torch.manual_seed(5)
        config = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=JOINT)
        config._attn_implementation = attention
        model = CLIPModel(config).eval()
        for p in model.parameters():
            if p.dim() >= 2:
                p.data = torch.randn_like(p) * (0.5 if p.shape[0] > 100 else 0.7 / p[0].numel() ** 0.5)
        saved = pathlib.Path(out, "saved")
        shutil.rmtree(saved, ignore_errors=True)
        model.save_pretrained(saved)
        tt = CLIPTextModelWithProjection.from_pretrained(saved, attn_implementation=attention).eval()
        vv = CLIPVisionModelWithProjection.from_pretrained(saved, attn_implementation=attention).eval()
        ids, px = whole(), torch.randn(3, 3, IMAGE, IMAGE)
        mask = (torch.arange(CONTEXT)[None] <= ids.argmax(-1, keepdim=True)).long()
        both = {0: "batch", 1: "sequence"}
        ref = lambda path: golden(path, tt.text_model.embeddings, lambda i: tt(input_ids=i).text_embeds, lambda p: vv(pixel_values=p).image_embeds)
        for masked in (False, True):
            for opset, dynamo, fold in ((14, False, True), (17, False, False), (20, False, True), (18, True, True), (23, True, True)):
                name = f"hf-{attention}-{'mask' if masked else 'ids'}-{'dynamo' if dynamo else 'torchscript'}-{opset}"
                path = folder(out, name)
                names, args = (["input_ids", "attention_mask"], (ids, mask)) if masked else (["input_ids"], (ids,))
                more = {} if dynamo else {"do_constant_folding": fold}
                write(Text(tt, masked), args, f"{path}/text.onnx", names, ["text_embeds"], {n: both for n in names}, opset, dynamo, **more)
                write(Image(vv), (px,), f"{path}/image.onnx", ["pixel_values"], ["image_embeds", "last_hidden_state"], {"pixel_values": {0: "batch"}}, opset, dynamo, **more)
                ref(path)
        path = folder(out, f"hf-{attention}-one")  # both towers in one file, all outputs
        names = ["input_ids", "pixel_values", "attention_mask"]
        axes = {"input_ids": both, "attention_mask": both, "pixel_values": {0: "image_batch"}}

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.m = model

            def forward(self, input_ids, pixel_values, attention_mask):
                y = self.m(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask, return_dict=True)
                return y.logits_per_image, y.logits_per_text, y.text_embeds, y.image_embeds

        write(Both(), (ids, px, mask), f"{path}/model.onnx", names, ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"], axes, 14)
        ref(path)
        if attention == "eager":  # half precision: the reference is float32 with the same rounded weights
            import copy
            th, vh = copy.deepcopy(tt).half(), copy.deepcopy(vv).half()
            for a, b in ((tt, th), (vv, vh)):
                for p, q in zip(a.parameters(), b.parameters()):
                    p.data = q.data.float()
            path = folder(out, "hf-half")
            write(Text(th, False), (ids,), f"{path}/text.onnx", ["input_ids"], ["text_embeds"], {"input_ids": both}, 17)
            write(Image(vh), (px.half(),), f"{path}/image.onnx", ["pixel_values"], ["image_embeds", "last_hidden_state"], {"pixel_values": {0: "batch"}}, 17)
            ref(path)
            vv = CLIPVisionModelWithProjection.from_pretrained(saved, attn_implementation=attention).eval()
            tt = CLIPTextModelWithProjection.from_pretrained(saved, attn_implementation=attention).eval()
        try:
            from optimum.exporters.onnx import onnx_export_from_model
        except ImportError:
            continue
        from transformers import CLIPImageProcessor
        for label, m, task in (("one", model, "zero-shot-image-classification"), ("features", model, "feature-extraction"), ("text", tt, "feature-extraction")):
            path = folder(out, f"optimum-{attention}-{label}")
            m.config._name_or_path = str(saved)
            try:
                onnx_export_from_model(m, output=path, task=task, opset=None, do_validation=False, preprocessors=[CLIPImageProcessor(size=IMAGE, crop_size=IMAGE)])
                if label == "text":
                    pathlib.Path(path, "model.onnx").rename(pathlib.Path(path, "text.onnx"))
                    onnx_export_from_model(vv, output=path, task="feature-extraction", do_validation=False)
                    pathlib.Path(path, "model.onnx").rename(pathlib.Path(path, "image.onnx"))
            except Exception as e:
                print(f"{path}: not exported: {type(e).__name__} {str(e).strip().splitlines()[0][:150]}")
            ref(path)


def main(out):
    openai(out)
    try:
        import transformers
    except ImportError:
        print("no transformers: its towers are left out")
        return
    if tuple(int(v) for v in transformers.__version__.split(".")[:2]) >= (4, 40):
        hugging_face(out)


if __name__ == "__main__":
    main(sys.argv[1])
