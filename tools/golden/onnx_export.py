"""Small networks written by PyTorch's own ONNX exporter in three operator sets, with PyTorch's autograd gradients.

Writes NET-OPSET.onnx and NET.json (input x, cotangent c, output y, gradient of <c, y> with respect to x) to the folder named
on the command line (runtime/grad/testdata).
"""
import json
import sys
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.c2 = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.avg = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, 3)
        self.bn.running_mean.uniform_(-0.3, 0.3)
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x):
        h = torch.relu(self.bn(self.c1(x)))
        h = self.pool(h + nn.functional.hardswish(self.c2(h)))
        return self.fc(torch.flatten(self.avg(nn.functional.leaky_relu(h, 0.1)), 1))


class Block(nn.Module):
    """A pre-norm transformer block over a class token and positions, read at the class token."""

    def __init__(self, width=8, heads=2, length=5):
        super().__init__()
        self.heads = heads
        self.cls = nn.Parameter(torch.randn(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, length + 1, width) * 0.1)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        x = torch.cat([self.cls.expand(b, -1, -1), x], 1) + self.pos[:, : n + 1]
        q, k, v = self.qkv(self.ln1(x)).view(b, n + 1, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = (q @ k.transpose(-1, -2) / (w // self.heads) ** 0.5).softmax(-1)
        x = x + self.out((a @ v).transpose(1, 2).reshape(b, n + 1, w))
        h = self.fc1(self.ln2(x))
        x = x + self.fc2(h * torch.sigmoid(1.702 * h) + nn.functional.gelu(h))
        y = x[:, 0] + x[:, 1:].mean(1)
        return y / y.norm(dim=-1, keepdim=True)


def main(folder):
    for name, make, shape in (("convnet", ConvNet, (2, 3, 11, 11)), ("block", Block, (2, 5, 8))):
        torch.manual_seed(5)
        net = make().eval()
        x = torch.randn(shape, requires_grad=True)
        y = net(x)
        c = torch.randn(y.shape)
        (y * c).sum().backward()
        record = {k: {"shape": list(t.shape), "data": [float("%.8g" % v) for v in t.detach().flatten()]}
                  for k, t in (("x", x), ("c", c), ("y", y), ("grad", x.grad))}
        with open(f"{folder}/{name}.json", "w") as f:
            json.dump(record, f)
        for opset in (11, 13, 17):
            torch.onnx.export(net, torch.randn((3,) + shape[1:]), f"{folder}/{name}-{opset}.onnx", opset_version=opset,
                              input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})


if __name__ == "__main__":
    main(sys.argv[1])
