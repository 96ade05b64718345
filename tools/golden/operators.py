"""PyTorch's outputs and gradients of single operators, one file each in the folder named on the command line
(runtime/ops/testdata): inputs by name, a cotangent c, the output y, and grad/NAME of sum(c * y).
"""
import json
import sys

import torch
import torch.nn.functional as F

# file: inputs with their shapes, and the operator
OPERATORS = {
    "mish": ({"x": (3, 7)}, lambda x: F.mish(x)),
    "groupnorm": ({"x": (2, 6, 3, 2), "scale": (6,), "bias": (6,)},
                  lambda x, scale, bias: F.group_norm(x, 2, scale, bias, eps=1e-3)),
}


def main(folder):
    for name, (shapes, f) in OPERATORS.items():
        torch.manual_seed(5)
        p = {k: (2 * torch.randn(s)).requires_grad_() for k, s in shapes.items()}
        y = f(**p)
        c = torch.randn(y.shape)
        (c * y).sum().backward()
        out = dict(p, c=c, y=y, **{"grad/" + k: t.grad for k, t in p.items()})
        with open(f"{folder}/{name}.json", "w") as fp:
            json.dump({k: {"shape": list(t.shape), "data": [float("%.8g" % v) for v in t.detach().flatten()]}
                       for k, t in out.items()}, fp)


if __name__ == "__main__":
    main(sys.argv[1])
