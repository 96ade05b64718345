"""PromptFL as a Flower app: the same experiment as promptfed trace, with its batches and its first prompt.

Each client trains the prompt with PyTorch, behind the text tower of a Hugging Face CLIP; FedAvg merges. make flower runs it
with flwr run, and docs/coming-from.md compares both sides.
"""
import functools
import json

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import CLIPModel

client = ClientApp()
server = ServerApp()


class Experiment:
    """What a trace holds: batches of clients, first prompt, class names as tokens; and the frozen text tower."""

    def __init__(self, trace, checkpoint):
        with open(trace + "/trace.json") as f:
            self.about = json.load(f)
        self.tensors = load_file(trace + "/trace.safetensors")
        self.tower = CLIPModel.from_pretrained(checkpoint).requires_grad_(False).eval()
        self.tower.text_model.embeddings.token_embedding.register_forward_hook(self.insert)
        bundle, tokens = self.about["bundles"][0], self.about["tokens"]
        self.scale, longest, self.prompt = bundle["logit_scale"], max(map(len, tokens)), len(self.tensors["init/ctx"])
        self.ids = torch.tensor([[bundle["sos"]] + [0] * self.prompt + t + [0] * (longest - len(t)) for t in tokens])
        self.ctx = None

    def insert(self, module, inputs, embeddings):
        """Puts the prompt behind the start token of each class."""
        ctx = self.ctx.expand(len(self.ids), -1, -1)
        return torch.cat([embeddings[:, :1], ctx, embeddings[:, 1 + self.prompt:]], 1)

    def loss(self, ctx, image, label):
        self.ctx = ctx
        texts = F.normalize(self.tower.text_projection(self.tower.text_model(self.ids).pooler_output), dim=-1)
        return F.cross_entropy(self.scale * image @ texts.T, label)


experiment = functools.cache(Experiment)


def of(context):
    return experiment(context.run_config["trace"], context.run_config["checkpoint"])


@client.train()
def train(message, context):
    e, k = of(context), context.node_config["partition-id"]
    round = message.content["config"]["server-round"] - 1  # Flower counts from 1
    settings = e.about["config"]["train"]
    ctx = message.content["arrays"].to_torch_state_dict()["ctx"].requires_grad_()
    sgd = torch.optim.SGD([ctx], settings["lr"], settings["momentum"], weight_decay=settings["weight_decay"])
    step, at = 0, "r%d/c%d/s%d/"
    while at % (round, k, step) + "image" in e.tensors:
        sgd.zero_grad()
        e.loss(ctx, *(e.tensors[at % (round, k, step) + name] for name in ("image", "label"))).backward()
        sgd.step()
        step += 1
    examples = MetricRecord({"num-examples": e.about["clients"][k]["examples"]})
    return Message(RecordDict({"arrays": ArrayRecord({"ctx": ctx.detach()}), "metrics": examples}), reply_to=message)


@server.main()
def serve(grid, context):
    e, rounds, clients = of(context), context.run_config["num-server-rounds"], len(of(context).about["clients"])

    def compare(round, arrays):
        """Tests nothing: reports how far the merged prompt is from that of the trace, of the largest value there."""
        want = e.tensors["r%d/merged/ctx" % (round - 1) if round else "init/ctx"]
        far = ((arrays.to_torch_state_dict()["ctx"] - want).abs().max() / want.abs().max()).item()
        if not far <= 1e-4:
            raise ValueError("round %d: the prompt is another one, by %.1e" % (round, far))
        print("round %d: the prompt differs by %.1e" % (round, far), flush=True)
        return MetricRecord({"difference": far})

    FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients).start(
        grid, ArrayRecord({"ctx": e.tensors["init/ctx"]}), num_rounds=rounds, evaluate_fn=compare)
