"""The work of a client and of the server in the simulations of sim_flower.py and sim_pfl.py: PromptFL on image features, with the text
tower of step_torch.py.

FOLDER has the files of step_torch.py, workload.json (clients, cohort, train, test, batch, test_every, empty, lr, momentum,
weight_decay) and clients.safetensors: image [N,D] and label [N] of all clients, each with its training images and then its test images.
Standard output begins with a line of JSON, {"version": text, "how": text}. Standard input has commands, each answered with a line:
"rounds N" runs N rounds, "prompt FILE" writes the merged prompt as float32.
"""
import json
import os
import sys

import torch

from step_torch import Text, tensors


class Task:
    def __init__(self, folder, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        with open(os.path.join(folder, "workload.json")) as f:
            self.__dict__.update(json.load(f))
        self.tower = Text(folder)
        data = tensors(os.path.join(folder, "clients.safetensors"))
        each = self.train + self.test
        self.image, self.label = (data[n].unflatten(0, (-1, each)) for n in ("image", "label"))
        self.ctx = self.tower.s["ctx"]
        self.loss = torch.compile(self.tower.loss)  # by the first call; it needs a C++ compiler

    def examples(self, client):
        """The training images and labels of a client."""
        client %= len(self.label)
        return self.image[client, :self.train], self.label[client, :self.train]

    def batches(self, client):
        return zip(*(x.split(self.batch) for x in self.examples(client)))

    def optimizer(self, params, lr):
        return torch.optim.SGD(params, lr=lr, momentum=self.momentum, weight_decay=self.weight_decay)

    def trained(self, ctx, client):
        """The prompt that a client returns for the prompt of the server."""
        if self.empty:
            return ctx
        ctx = ctx.clone().requires_grad_()
        optimizer = self.optimizer([ctx], self.lr)
        for image, label in self.batches(client):
            optimizer.zero_grad()
            self.loss(ctx, image, label).backward()
            optimizer.step()
        return ctx.detach()

    @torch.no_grad()
    def accuracy(self, ctx):
        """Of the test images of all clients."""
        image, label = (x[:, self.train:].flatten(0, 1) for x in (self.image, self.label))
        return (self.tower.scores(ctx, image).argmax(1) == label).float().mean().item()


class Control:
    """Stops a simulation between rounds, until standard input asks for more."""

    def __init__(self, task, version, how):
        self.task, self.left, self.round = task, 0, 0
        print(json.dumps({"version": version, "how": how}), flush=True)

    def after_round(self, ctx):
        """Tests the prompt and answers the commands; ctx is the merged prompt. The first call is before the first round."""
        if self.round > 0:
            self.left -= 1
            if not self.task.empty and self.round % self.task.test_every == 0:
                self.task.accuracy(ctx)
            if self.left == 0:
                print("done", flush=True)
        self.round += 1
        while self.left == 0:
            what = sys.stdin.readline().split()
            if not what:
                sys.stdout.flush()
                return False
            if what[0] == "rounds":
                self.left = int(what[1])
            else:
                ctx.numpy().astype("<f4").tofile(what[1])
                print("done", flush=True)
        return True
