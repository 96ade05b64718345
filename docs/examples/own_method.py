"""A method of your own in PyTorch, beside PromptFL and FedPHA on the demo's data; CONTRIBUTING.md has the Go way.

    python docs/examples/own_method.py
"""
import torch.nn.functional as F

import promptfed


class Ensemble(promptfed.Method):
    """A shared and a private prompt score together; what the private one changes stays small."""

    shared = promptfed.Prompt(tokens=4)
    own = promptfed.Prompt(tokens=4, private=True)

    def __init__(self, weight=2.0):
        self.weight = weight

    def text(self):
        return F.normalize(self.encode_text(self.shared) + self.encode_text(self.own), dim=1)  # [C,D]

    def logits(self, image):
        return self.scale * image @ self.text().T

    def loss(self, logits, label):
        away = 1 - F.cosine_similarity(self.text(), self.encode_text(self.received.shared))
        return {"cross_entropy": F.cross_entropy(logits, label), "away": self.weight * away.mean()}


if __name__ == "__main__":
    demo = [("3-promptfl", None), ("4-fedpha", None), ("3-promptfl", Ensemble())]
    runs = [promptfed.run(f"configs/demo/{config}.yaml", method, name=method and "ensemble" or config[2:],
                          out=f"runs/own/{i}", force=True) for i, (config, method) in enumerate(demo)]
    print(promptfed.compare(*runs).table("last5", "f1", "worst"))
