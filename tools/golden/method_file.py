"""Writes a method's file with PyTorch's exporter: FedProx over PromptFL, loss + mu/2 |ctx - received|².

    python3 tools/golden/method_file.py federation/methods/testdata

The metadata entry is appended as bytes (field 14 of ModelProto), so that the package onnx is not needed.
"""
import io
import json
import sys

import torch
import torch.nn.functional as F

MU = 2.0
META = {"version": 1, "mean": "examples", "parameters": [
    {"name": "ctx", "shape": ["T", "w"], "tokens": 3, "owner": "shared", "std": 0.4}]}


class Method(torch.nn.Module):
    def forward(self, image, label, text, ctx, received, scale):
        logits = scale * image @ text.t()
        ce = F.cross_entropy(logits, label)
        proximal = MU / 2 * ((ctx - received) ** 2).sum()
        return logits, ce + proximal, ce, proximal


def field(number, payload):
    """A length-delimited field of a protobuf message."""
    out, n = bytearray(), len(payload)
    for value in (number << 3 | 2, n):
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return bytes(out) + payload


def main(folder):
    b, c, d, t, w = 5, 3, 7, 4, 6
    args = (torch.randn(b, d), torch.randint(c, (b,)), torch.randn(c, d), torch.randn(t, w), torch.randn(t, w),
            torch.tensor(4.0))
    names = ["image", "label", "text/ctx", "param/ctx", "received/ctx", "scale"]
    f = io.BytesIO()
    torch.onnx.export(Method(), args, f, input_names=names,
                      output_names=["logits", "loss", "cross_entropy", "proximal"], opset_version=16,
                      dynamic_axes={"image": {0: "B", 1: "D"}, "label": {0: "B"}, "text/ctx": {0: "C", 1: "D"},
                                    "param/ctx": {0: "T", 1: "w"}, "received/ctx": {0: "T", 1: "w"}})
    entry = field(1, b"promptfed.method") + field(2, json.dumps(META).encode())
    with open(folder + "/fedprox-torch.onnx", "wb") as out:
        out.write(f.getvalue() + field(14, entry))


if __name__ == "__main__":
    main(sys.argv[1])
