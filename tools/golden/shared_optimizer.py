"""Golden numbers for train.optimizer_state: two rounds of two clients over one prompt of width 1, by torch.optim.SGD (PyTorch 1.13),
with a new optimizer in every turn of a client and with one object for all, as in the public code of FedOTP, FedPGP and pFedMoAP.
The model is the pencil of federation/methodtest/hand.go: class features (1,p) and (1,-p) of length one, logits their products with the
image. Momentum and weight decay are Dassl's.

Run from the module root: /usr/bin/python3 tools/golden/shared_optimizer.py
"""
import json
import os

import torch

CLIENTS = [([[.6, .8]], [0]), ([[.8, .6], [.8, .6]], [1, 1])]


def run(shared):
    p = torch.nn.Parameter(torch.tensor(.25, dtype=torch.float64))

    def optimizer():
        return torch.optim.SGD([p], lr=.1, momentum=.9, weight_decay=5e-4)

    opt, now, after = optimizer(), .25, []
    for _ in range(2):
        ends = []
        for images, labels in CLIENTS:
            if not shared:
                opt = optimizer()
            p.data.fill_(now)
            x, y = torch.tensor(images, dtype=torch.float64), torch.tensor(labels)
            for _ in range(2):
                opt.zero_grad()
                one = torch.ones((), dtype=torch.float64)
                text = torch.stack([torch.stack([one, p]), torch.stack([one, -p])])
                torch.nn.functional.cross_entropy(x @ (text / text.norm(dim=1, keepdim=True)).T, y).backward()
                opt.step()
                after.append(float(p.detach()))
            ends.append(after[-1])
        now = (ends[0] + 2 * ends[1]) / 3
        after.append(now)
    return after


os.makedirs("federation/methods/testdata/optimizer", exist_ok=True)
with open("federation/methods/testdata/optimizer/shared.json", "w") as f:
    json.dump({name: run(name == "shared") for name in ["fresh", "shared"]}, f, indent=1)
    f.write("\n")
