"""Methods written with promptfed.Method. Tests compare each with its twin in Go; tools/golden/method_file.py exports them
for the tests in Go."""
import torch
import torch.nn.functional as F

import promptfed


class PromptFL(promptfed.Method):
    """PromptFL: one shared prompt."""

    ctx = promptfed.Prompt(tokens=3, std=0.4)

    def logits(self, image):
        return self.scale * image @ self.encode_text(self.ctx).T

    def loss(self, logits, label):
        return {"cross_entropy": F.cross_entropy(logits, label)}


class EnginePromptFL(PromptFL):
    """PromptFL with the engine's functions, which wrappers see."""

    ctx = promptfed.Prompt(tokens=16)

    def logits(self, image):
        return self.cosine(image, self.encode_text(self.ctx))

    loss = promptfed.Method.loss


class L2(PromptFL):
    """PromptFL with weight decay as a term."""

    def loss(self, logits, label):
        return {**super().loss(logits, label), "decay": 0.125 * self.ctx.square().sum()}


class FedProx(PromptFL):
    """Li et al., MLSys 2020, mu = 2."""

    def loss(self, logits, label):
        return {**super().loss(logits, label), "proximal": F.mse_loss(self.ctx, self.received.ctx, reduction="sum")}


class FedOTP(promptfed.Method):
    """Li et al., CVPR 2024: the engine's transport plan between patches and two prompts."""

    global_ = promptfed.Prompt(tokens=3, std=0.4)
    local = promptfed.Prompt(tokens=3, std=0.4, private=True)

    def similarity(self):
        text = torch.stack([self.encode_text(self.global_), self.encode_text(self.local)])  # [2,C,D]
        return torch.einsum("bmd,ncd->nbcm", self.patches, text)

    def plan(self, similarity):
        return self.transport(similarity)

    def logits(self, image):
        similarity = self.similarity()
        return self.scale * (self.plan(similarity) * similarity).sum((0, 3))

    def loss(self, logits, label):
        return {"cross_entropy": F.cross_entropy(logits, label)}


class UnrolledFedOTP(FedOTP):
    """FedOTP with the iterations of its plan in PyTorch, a constant for gradients."""

    @torch.no_grad()
    def plan(self, similarity):
        patches = similarity.shape[3]
        kernel = ((similarity - 1) * 10).exp()
        v = torch.ones_like(kernel.sum(3, keepdim=True))
        for _ in range(8):
            u = (1 / (patches * (kernel * v).sum(0, keepdim=True))).clamp(max=1)
            v = 0.4 / (kernel * u).sum(3, keepdim=True)
        return kernel * u * v


class FedPHA(promptfed.Method):
    """Fang et al., ICML 2025: the engine's projector of the global prompt's null space."""

    global_ = promptfed.Prompt(tokens=3, std=0.4)
    local = promptfed.Prompt(tokens=2, std=0.4, private=True)

    def logits(self, image):
        return self.scale * image @ self.encode_text(self.local).T

    def loss(self, logits, label):
        image = self.image
        shared, own = self.encode_text(self.global_), self.encode_text(self.local)
        projected = self.encode_text(self.project(self.local, self.global_, ratio=0.5))
        return {"cross_entropy_local": F.cross_entropy(logits, label),
                "cross_entropy_global": F.cross_entropy(self.scale * image @ shared.T, label),
                "pull": (own - projected).square().sum(1).mean(),
                "push": F.relu(1 - (own - shared).norm(dim=1)).mean()}


class Scaffold(PromptFL):
    """Karimireddy et al., ICML 2020, option II, over PromptFL."""

    control = promptfed.Down(PromptFL.ctx)
    own = promptfed.State(PromptFL.ctx)
    change = promptfed.Up(PromptFL.ctx)

    def loss(self, logits, label):
        return {**super().loss(logits, label), "correction": ((self.control - self.own) * self.ctx).sum()}

    def finish(self):
        path = self.step * self.lr
        moved = (self.received.ctx - self.ctx) / path - self.control
        change = torch.where(path > 0, moved, torch.zeros_like(moved))
        return {"own": self.own + change, "change": change}

    def merge(self, uploads):
        return {"ctx": uploads.ctx.mean(0), "control": self.control + uploads.change.sum(0) / self.num_clients}


class KgCoOp(PromptFL):
    """Yao et al., CVPR 2023: near the features of hand-written prompts."""

    def loss(self, logits, label):
        near = 1 - F.cosine_similarity(self.encode_text(self.ctx), self.hand_text)
        return {**super().loss(logits, label), "knowledge": 8 * near.mean()}


class Inputs(PromptFL):
    """What the others do not read: last trained values, earlier class features and scores, and numbers."""

    def loss(self, logits, label):
        numbers = 1 + self.lr + self.num_classes + self.num_examples + self.round
        text, before = self.encode_text(self.ctx), self.before.encode_text(self.ctx)
        moved = (text - self.encode_text(self.received.ctx) + before).square().mean() / numbers
        return {**super().loss(logits, label),
                "distillation": F.cross_entropy(logits, self.teacher_logits.softmax(1)),
                "moved": moved, "apart": 0.1 * (self.ctx - self.before.ctx).square().sum()}


class PerImage(PromptFL):
    """A prompt for each image, as in CoCoOp: ctx + tanh(x W)."""

    meta = promptfed.Parameter("D", "w", std=0.1, value=0.05)

    def logits(self, image):
        prompt = self.ctx + torch.tanh(image @ self.meta).unsqueeze(1)  # [B,T,w]
        return self.scale * torch.einsum("bcd,bd->bc", self.encode_text(prompt), image)


class Noisy(PromptFL):
    """New noise of images in every step, and a loss that falls with them."""

    eps = promptfed.Noise("B", "D")
    level = promptfed.Noise(distribution="uniform")

    def loss(self, logits, label):
        seen = self.scale * (self.image + self.level * self.eps) @ self.encode_text(self.ctx).T
        return {"cross_entropy": F.cross_entropy(seen, label) / (1 + self.step)}


METHODS = {"promptfl": EnginePromptFL, "promptfl-l2": L2, "fedprox": FedProx, "fedotp": FedOTP,
           "fedotp-unrolled": UnrolledFedOTP, "fedpha": FedPHA, "scaffold": Scaffold, "kgcoop": KgCoOp,
           "inputs": Inputs, "per-image": PerImage, "noise": Noisy}
