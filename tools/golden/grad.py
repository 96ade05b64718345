"""PyTorch autograd of a composed graph: causal attention block with LayerNorm and QuickGELU, then cross entropy.

Writes composed.json to the folder named on the command line (runtime/grad/testdata): inputs by name, loss, grad/NAME.
"""
import json
import sys

import torch
import torch.nn.functional as F

B, N, W, H, C = 2, 4, 6, 2, 3


def main(folder):
    torch.manual_seed(11)
    shapes = {"x": (B, N, W), "ln1.w": (W,), "ln1.b": (W,), "ln2.w": (W,), "ln2.b": (W,), "qkv.w": (3 * W, W), "qkv.b": (3 * W,),
              "out.w": (W, W), "out.b": (W,), "fc1.w": (2 * W, W), "fc1.b": (2 * W,), "fc2.w": (W, 2 * W), "fc2.b": (W,), "head": (C, W)}
    p = {k: torch.randn(s, requires_grad=True) for k, s in shapes.items()}
    mask = torch.full((N, N), -1e4).triu(1)
    x = p["x"]
    q, k, v = F.linear(F.layer_norm(x, (W,), p["ln1.w"], p["ln1.b"]), p["qkv.w"], p["qkv.b"]).view(B, N, 3, H, W // H).permute(2, 0, 3, 1, 4)
    a = (q @ k.transpose(-1, -2) * (W // H) ** -0.5 + mask).softmax(-1) @ v
    x = x + F.linear(a.transpose(1, 2).reshape(B, N, W), p["out.w"], p["out.b"])
    h = F.linear(F.layer_norm(x, (W,), p["ln2.w"], p["ln2.b"]), p["fc1.w"], p["fc1.b"])
    x = x + F.linear(h * torch.sigmoid(1.702 * h), p["fc2.w"], p["fc2.b"])
    f = F.normalize(x[:, -1], dim=-1)
    loss = F.cross_entropy(4 * f @ F.normalize(p["head"], dim=-1).t(), torch.tensor([2, 0]))
    loss.backward()
    out = dict(p, loss=loss, **{"grad/" + k: t.grad for k, t in p.items()})
    with open(f"{folder}/composed.json", "w") as fp:
        json.dump({k: {"shape": list(t.shape), "data": [float("%.8g" % v) for v in t.detach().flatten()]} for k, t in out.items()}, fp)


if __name__ == "__main__":
    main(sys.argv[1])
