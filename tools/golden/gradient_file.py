"""A bundle whose text tower brings its own gradient: torch.func.vjp, exported to ONNX, and prompts that PyTorch trained.

    python3 tools/golden/gradient_file.py models/bundle/exported/testdata

The tower rounds its activations to steps of 1/8, with a straight-through gradient. Tried with PyTorch 2.15 and onnxscript 0.7.
"""
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import checkpoint as ck
import exported_onnx
import exported_towers as et

STEPS, LR, SCALE = 10, 0.5, 10.0


class Text(nn.Module):
    """Tokens mixed by a causal mean, through a layer of rounded activations."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(et.CONTEXT, et.WIDTH) * 0.3)
        self.hidden, self.projection = nn.Linear(et.WIDTH, 16), nn.Parameter(torch.randn(16, et.JOINT) * 0.5)
        ones = torch.ones(et.CONTEXT, et.CONTEXT).tril()
        self.register_buffer("mean", ones / ones.sum(1, keepdim=True))

    def forward(self, embeddings, eot):
        h = torch.tanh(self.hidden(self.mean @ (embeddings + self.positions)) * 3)
        h = h + (torch.round(8 * h) / 8 - h).detach()
        at = (torch.arange(et.CONTEXT) == eot.unsqueeze(1)).float().unsqueeze(1)
        return (at @ h).squeeze(1) @ self.projection


class Gradient(nn.Module):
    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, embeddings, eot, cotangent):
        text, back = torch.func.vjp(lambda x: self.tower(x, eot), embeddings)
        return text, back(cotangent)[0]


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(12, et.JOINT)

    def forward(self, pixels):
        return self.projection(F.avg_pool2d(pixels, 8).flatten(1))


def export(net, args, path, inputs, outputs, open_batch=True):
    dims = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs) if open_batch else None
    program = torch.export.export(net, args, dynamic_shapes=dims)
    torch.onnx.export(program, (), path, dynamo=True, external_data=False, verbose=False, input_names=inputs, output_names=outputs, opset_version=18)
    exported_onnx.anonymous(path)


def main(out):
    torch.manual_seed(7)
    tower, image = Text().eval().requires_grad_(False), Image().eval().requires_grad_(False)
    table = torch.randn(et.VOCAB, et.WIDTH) * 0.5
    path = et.folder(out, "straight-through", text={"causal": True}, token_embedding={"file": "tokens.safetensors", "tensor": "weight"})
    ck.write_safetensors(f"{path}/tokens.safetensors", {"weight": table})
    ctx = (torch.randn(et.CTX, et.WIDTH) * 0.5).requires_grad_()
    emb, ids = et.sequences(table, ctx.detach())
    eot, pixels = ids.argmax(-1), torch.randn(9, 3, et.IMAGE, et.IMAGE)
    names = ["embeddings", "eot"]
    export(tower, (emb, eot), f"{path}/text.onnx", names, ["text"])
    names.append("cotangent/text")
    args = (emb, eot, torch.randn(3, et.JOINT))
    traced = make_fx(Gradient(tower))(*args)  # torch.export cannot trace torch.func.vjp
    export(traced, args, f"{path}/text-gradient.onnx", names, ["text", "grad/embeddings"], open_batch=False)
    export(image, (pixels,), f"{path}/image.onnx", ["pixels"], ["image"])

    features, label = F.normalize(image(pixels), dim=-1), torch.arange(9) % 3
    numbers = {"ctx": ctx.detach().clone(), "image": features}
    for _ in range(STEPS):
        emb, _ = et.sequences(table, ctx)
        loss = F.cross_entropy(SCALE * features @ F.normalize(tower(emb, eot), dim=-1).T, label)
        gradient, = torch.autograd.grad(loss, ctx)
        with torch.no_grad():
            ctx -= LR * gradient
    numbers.update(trained=ctx.detach())
    ck.write_safetensors(f"{path}/trained.safetensors", {k: v.float().contiguous() for k, v in numbers.items()})


if __name__ == "__main__":
    main(sys.argv[1])
