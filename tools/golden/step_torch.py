"""One training step of a text prompt in PyTorch, as an expert writes it by hand: the opponent of promptfed bench --against.

    python3 tools/golden/step_torch.py FOLDER THREADS

FOLDER has text.safetensors, the text tower by OpenAI's names, and step.safetensors: ctx [T,w], start [1,w] and suffix [R,w], the
embeddings of the start token and of all classes' own tokens one after the other, lengths [C] of these, image [B,D], label [B], scale [1]
and heads [1].
The prefix [start, ctx] goes through the tower once for all classes; rows of all classes lie one after the other in linear layers, without
padding; in the last block only the rows at the end tokens go beyond keys and values. Standard output begins with a line of
JSON, {"version": version, "modes": ["eager", "compile"]}, the second where torch.compile works here. Every line of standard input
that names a mode takes one step of SGD with momentum, "gradient FILE" writes the gradient of the first ctx as float32;
each is answered with a line.
"""
import json
import os
import sys

import numpy
import torch
from torch.nn import functional as F


def tensors(path):
    """Reads a safetensors file of float32 and int64."""
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        data = numpy.frombuffer(bytearray(f.read()), numpy.uint8)
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            kind = {"F32": numpy.float32, "I64": numpy.int64}[t["dtype"]]
            out[name] = torch.from_numpy(data[begin:end].view(kind).reshape(t["shape"]))
    return out


class Tower:
    def __init__(self, folder):
        self.w, s = tensors(os.path.join(folder, "text.safetensors")), tensors(os.path.join(folder, "step.safetensors"))
        self.s, self.heads = s, int(s["heads"])
        self.layers = 1 + max(int(n.split(".")[2]) for n in self.w if n.startswith("transformer."))
        self.prefix, lengths = 1 + len(s["ctx"]), s["lengths"].tolist()
        classes, longest = len(lengths), max(lengths)
        position = self.w["positional_embedding"]
        self.start = s["start"] + position[:1]
        self.ctx_position = position[1:self.prefix]
        self.suffix = s["suffix"] + torch.cat([position[self.prefix:self.prefix + n] for n in lengths])
        # where the packed row of a class's token lies in [classes * longest] padded ones, and the last one of each
        self.padded = torch.cat([torch.arange(n) + i * longest for i, n in enumerate(lengths)])
        self.end = torch.cumsum(s["lengths"], 0) - 1
        self.last = s["lengths"] - 1
        self.classes, self.longest = classes, longest
        own = torch.full((longest, longest), float("-inf")).triu(1)
        self.mask = torch.cat([torch.zeros(longest, self.prefix), own], 1)
        self.causal = torch.full((self.prefix, self.prefix), float("-inf")).triu(1)

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"])

    def attend(self, q, k, v, mask):
        d = q.shape[-1]
        return torch.softmax(q @ k.transpose(-1, -2) * d ** -0.5 + mask, -1) @ v

    def split(self, x):
        """Rows [n,w] to heads [h,n,d]."""
        return x.view(x.shape[0], self.heads, -1).transpose(0, 1)

    def pad(self, x):
        """Packed rows [R,w] to heads of classes [C,h,longest,d]."""
        full = x.new_zeros(self.classes * self.longest, x.shape[1]).index_copy(0, self.padded, x)
        return full.view(self.classes, self.longest, self.heads, -1).transpose(1, 2)

    def block(self, x, i, only_end):
        p = "transformer.resblocks.%d." % i
        n, w = self.prefix, x.shape[1]
        h = self.norm(x, p + "ln_1")
        inw, inb = self.w[p + "attn.in_proj_weight"], self.w[p + "attn.in_proj_bias"]
        if only_end:
            k, v = F.linear(h, inw[w:], inb[w:]).split(w, 1)
            q = F.linear(h[n + self.end], inw[:w], inb[:w]).view(self.classes, 1, self.heads, -1).transpose(1, 2)
            mask = self.mask[self.last][:, None, None, :]
            x = x[n + self.end]
        else:
            q, k, v = F.linear(h, inw, inb).split(w, 1)
            head = self.attend(self.split(q[:n]), self.split(k[:n]), self.split(v[:n]), self.causal)
            q, mask = self.pad(q[n:]), self.mask
        keys = [torch.cat([self.split(t[:n])[None].expand(self.classes, -1, -1, -1), self.pad(t[n:])], 2) for t in (k, v)]
        rows = self.attend(q, keys[0], keys[1], mask).transpose(1, 2).reshape(-1, w)
        if not only_end:
            rows = torch.cat([head.transpose(0, 1).reshape(n, w), rows[self.padded]])
        x = x + F.linear(rows, self.w[p + "attn.out_proj.weight"], self.w[p + "attn.out_proj.bias"])
        h = F.linear(self.norm(x, p + "ln_2"), self.w[p + "mlp.c_fc.weight"], self.w[p + "mlp.c_fc.bias"])
        return x + F.linear(h * torch.sigmoid(1.702 * h), self.w[p + "mlp.c_proj.weight"], self.w[p + "mlp.c_proj.bias"])

    def text(self, ctx):
        """The unit features [C,D] of all classes."""
        x = torch.cat([self.start, ctx + self.ctx_position, self.suffix])
        for i in range(self.layers):
            x = self.block(x, i, i == self.layers - 1)
        return F.normalize(self.norm(x, "ln_final") @ self.w["text_projection"])

    def scores(self, ctx, image):
        return self.s["scale"] * image @ self.text(ctx).t()

    def loss(self, ctx, image, label):
        return F.cross_entropy(self.scores(ctx, image), label)


def main():
    folder, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    tower = Tower(folder)
    first, batch = tower.s["ctx"], (tower.s["image"], tower.s["label"])
    ctx = first.clone().requires_grad_()
    opt = torch.optim.SGD([ctx], lr=0.002, momentum=0.9, weight_decay=5e-4)
    modes = {"eager": tower.loss}
    if hasattr(torch, "compile"):
        try:
            modes["compile"] = torch.compile(tower.loss)
            modes["compile"](ctx, *batch).backward()
        except Exception as e:  # no compiler here
            print("torch.compile: %s" % str(e).split("\n")[0], file=sys.stderr)
            del modes["compile"]
    print(json.dumps({"version": torch.__version__, "modes": list(modes)}), flush=True)
    for line in sys.stdin:
        what = line.split()
        if what[0] == "gradient":
            at = first.clone().requires_grad_()
            tower.loss(at, *batch).backward()
            at.grad.numpy().astype("<f4").tofile(what[1])
        else:
            opt.zero_grad()
            modes[what[0]](ctx, *batch).backward()
            opt.step()
        print("done", flush=True)


if __name__ == "__main__":
    main()
