"""Small networks of many kinds for tools/golden/exported_onnx.py, each a module and the shape of its input."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    """CLIP's: anti-aliased strides (an average pool after the 3x3 convolution and in the shortcut)."""

    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inplanes, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False), nn.BatchNorm2d(planes)
        self.pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv3, self.bn3 = nn.Conv2d(planes, planes * 2, 1, bias=False), nn.BatchNorm2d(planes * 2)
        self.down = nn.Sequential(nn.AvgPool2d(stride), nn.Conv2d(inplanes, planes * 2, 1, bias=False), nn.BatchNorm2d(planes * 2))

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.pool(F.relu(self.bn2(self.conv2(h))))
        return F.relu(self.bn3(self.conv3(h)) + self.down(x))


class AttentionPool(nn.Module):
    def __init__(self, side, dim, heads, out):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(side * side + 1, dim) / dim ** 0.5)
        self.q, self.k, self.v, self.c = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, out)
        self.heads = heads

    def forward(self, x):
        x = x.flatten(2).permute(2, 0, 1)
        x = torch.cat([x.mean(0, keepdim=True), x]) + self.positions[:, None, :].to(x.dtype)
        x, _ = F.multi_head_attention_forward(
            query=x[:1], key=x, value=x, embed_dim_to_check=x.shape[-1], num_heads=self.heads, q_proj_weight=self.q.weight,
            k_proj_weight=self.k.weight, v_proj_weight=self.v.weight, in_proj_weight=None,
            in_proj_bias=torch.cat([self.q.bias, self.k.bias, self.v.bias]), bias_k=None, bias_v=None, add_zero_attn=False,
            dropout_p=0, out_proj_weight=self.c.weight, out_proj_bias=self.c.bias, use_separate_proj_weight=True,
            training=self.training, need_weights=False)
        return x.squeeze(0)


class ClipResNet(nn.Module):
    def __init__(self, out=6):
        super().__init__()
        chans = (3, 3, 3, 6)
        self.stem = nn.Sequential()
        for i in range(3):
            self.stem.add_module(f"conv{i}", nn.Conv2d(chans[i], chans[i + 1], 3, stride=2 if i == 0 else 1, padding=1, bias=False))
            self.stem.add_module(f"bn{i}", nn.BatchNorm2d(chans[i + 1]))
            self.stem.add_module(f"relu{i}", nn.ReLU(inplace=True))
        self.stem.add_module("pool", nn.AvgPool2d(2))
        self.body = nn.Sequential(Bottleneck(6, 4, 1), Bottleneck(8, 8, 2))
        self.pool = AttentionPool(2, 16, 2, out)

    def forward(self, x):
        return self.pool(self.body(self.stem(x)))


class TorchVision(nn.Module):
    """The stem of torchvision's ResNets, a basic block with a strided shortcut, and squeeze-and-excitation."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.a = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8))
        self.b = nn.Sequential(nn.Conv2d(4, 8, 1, 2), nn.BatchNorm2d(8))
        self.se = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.SiLU(), nn.Conv2d(2, 8, 1), nn.Hardsigmoid())
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(self.a(x) + self.b(x))
        return self.fc((x * self.se(x)).mean((2, 3))).log_softmax(-1)


class ConvNeXt(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem, self.dw = nn.Conv2d(3, d, 4, 4), nn.Conv2d(d, d, 7, padding=3, groups=d)
        self.n0, self.norm, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d, eps=1e-6), nn.LayerNorm(d)
        self.up, self.down, self.gamma = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Parameter(torch.rand(d))
        self.head = nn.Linear(d, 5)

    def forward(self, x):
        x = self.n0(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        h = self.norm(self.dw(x).permute(0, 2, 3, 1))
        h = self.gamma * self.down(F.gelu(self.up(h)))
        return self.head(self.n2((x + h.permute(0, 3, 1, 2)).mean((-2, -1))))


class Llama(nn.Module):
    """Rotary positions, root-mean-square norms, gated feed-forward, grouped keys."""

    def __init__(self, d=16, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups = heads, groups
        self.n1, self.n2 = nn.Parameter(torch.rand(d) + 0.5), nn.Parameter(torch.rand(d) + 0.5)
        self.q, self.k, self.v = nn.Linear(d, d, False), nn.Linear(d, d // groups, False), nn.Linear(d, d // groups, False)
        self.o, self.gate, self.up, self.down = nn.Linear(d, d, False), nn.Linear(d, 24, False), nn.Linear(d, 24, False), nn.Linear(24, d, False)

    def norm(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def rotate(self, x):
        n, half = x.shape[-2], x.shape[-1] // 2
        angle = torch.arange(n)[:, None] * 100.0 ** (-torch.arange(half) / half)[None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def forward(self, x):
        b, n, d = x.shape
        split = lambda t, h: t.view(b, n, h, -1).transpose(1, 2)
        h = self.norm(x, self.n1)
        q, k = self.rotate(split(self.q(h), self.heads)), self.rotate(split(self.k(h), self.groups))
        v = split(self.v(h), self.groups)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        s = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        s = s + torch.full((n, n), float("-inf")).triu(1)
        x = x + self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))
        h = self.norm(x, self.n2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Einsum(nn.Module):
    def __init__(self, d=8, heads=2):
        super().__init__()
        self.w, self.o = nn.Parameter(torch.randn(3, d, heads, d // heads) * 0.4), nn.Parameter(torch.randn(heads, d // heads, d) * 0.4)

    def forward(self, x):
        q, k, v = torch.einsum("bnd,tdhe->tbhne", x, self.w)
        a = torch.einsum("bhie,bhje->bhij", q, k).softmax(-1)
        return torch.einsum("bhij,bhje,hed->bid", a, v, self.o)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 8, 3, padding=1)
        self.g, self.i, self.p = nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True), nn.PReLU(8)
        for m in (self.g, self.i):
            m.weight.data.uniform_(0.5, 1.5), m.bias.data.uniform_(-0.5, 0.5)

    def forward(self, x):
        x = F.silu(self.g(self.c(x)))
        x = F.mish(self.i(x)) + F.hardswish(x) + self.p(x) + F.elu(x) + F.softplus(x) + F.selu(x) + F.celu(x, 0.7) + F.hardsigmoid(x)
        return F.local_response_norm(x, 3) if False else x


class Resizes(nn.Module):
    def forward(self, x):
        a = F.interpolate(x, scale_factor=2, mode="nearest")
        b = F.interpolate(x, size=(9, 11), mode="bilinear", align_corners=False)
        c = F.interpolate(x, size=(11, 7), mode="bicubic", align_corners=False)
        d = F.interpolate(x, size=(3, 9), mode="bilinear", align_corners=True)
        e = F.interpolate(x, size=(3, 4), mode="nearest")
        return torch.cat([t.flatten(1) for t in (a, b, c, d, e)], 1)


class Pools(nn.Module):
    def forward(self, x):
        outs = [F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, 2, ceil_mode=True),
                F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
                F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 1), F.max_pool2d(x, 2, 1, dilation=2),
                F.pad(x, (1, 2, 0, 1)), F.pad(x, (2, 1, 1, 2), mode="reflect"), F.pad(x, (1, 2, 2, 1), mode="replicate"),
                F.pixel_shuffle(x[:, :, ::1, ::1].repeat(1, 4, 1, 1), 2), F.lp_pool2d(x.abs() + 0.1, 2, 2)]
        return torch.cat([t.flatten(1) for t in outs], 1)


class Mixed(nn.Module):
    """Reductions and index operations as models use them."""

    def forward(self, x):
        p = x.abs() + 0.5
        outs = [p.prod(-1), p.prod(1), x.norm(dim=-1), F.normalize(x, dim=1).sum(-1), x.logsumexp(-1), x.std(-1), x.var(1, unbiased=False),
                x.cumsum(1)[:, -2], x.max(-1)[0], x.min(1).values, x.amax((1, 2))[:, None], x.topk(2, -1)[0].sum(-1),
                x.clamp(-0.5, 0.7).sum(1), torch.where(x > 0, x, x * x).sum(-1),
                x.roll(1, 1)[:, 0], x.flip(2)[:, 1], F.glu(x[..., :4], -1).sum(1),
                torch.stack(x.chunk(2, 1)).mean((0, 2)), x.expand(2, *x.shape).sum(0)[:, 0], x[:, [2, 0, 2]].sum(1),
                F.softmin(x, 1).sum(-1), x.sign().sum(1) + p.sqrt().sum(1) + p.rsqrt().sum(1) + p.log1p().sum(1),
                torch.maximum(x, x.mean(1, keepdim=True)).sum(1), F.cosine_similarity(x[:, :2], x[:, 2:4], dim=-1), p.pow(1.7).sum(1), (2.0 ** x).sum(1)]
        return torch.cat([t.flatten(1) for t in outs], 1)


class Odd(nn.Module):
    """What only some exporters write."""

    def forward(self, x):
        p = x.abs() + 0.5
        outs = [x.sort(-1)[0][..., 1], x.tril().sum(1), torch.tan(x * 0.3).sum(1), x.unfold(2, 2, 1).sum((1, 3)), x.atan().sum(1),
                x.remainder(0.7).sum(1), p.log1p().sum(1), x.asinh().sum(1), x.sinh().sum(1) + x.cosh().sum(1)]
        return torch.cat([t.flatten(1) for t in outs], 1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=True)
        self.e = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False) if "enable_nested_tensor" in nn.TransformerEncoder.__init__.__code__.co_varnames else nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        x.requires_grad  # keeps PyTorch off its fused path, which has no symbolic
        return self.e(x)[:, 0]


class Sdpa(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.qkv, self.o, self.causal = nn.Linear(8, 24), nn.Linear(8, 8), causal

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.o(y.transpose(1, 2).reshape(b, n, d))


class RmsModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.l = nn.RMSNorm(8), nn.Linear(8, 8)
        self.n.weight.data.uniform_(0.5, 1.5)

    def forward(self, x):
        return F.gelu(self.l(self.n(x)), approximate="tanh")


def nets():
    out = {
        "clipresnet": (ClipResNet, (2, 3, 16, 16)), "torchvision": (TorchVision, (2, 3, 20, 20)), "convnext": (ConvNeXt, (2, 3, 16, 16)),
        "llama": (Llama, (2, 5, 16)), "einsum": (Einsum, (2, 5, 8)), "norms": (Norms, (2, 3, 6, 5)), "resizes": (Resizes, (2, 2, 6, 5)),
        "pools": (Pools, (2, 2, 7, 8)), "mixed": (Mixed, (2, 4, 4)), "odd": (Odd, (2, 4, 4)), "encoder": (Encoder, (2, 4, 8)),
    }
    if hasattr(F, "scaled_dot_product_attention"):
        out["sdpa"], out["causal"] = (lambda: Sdpa(False), (2, 5, 8)), (lambda: Sdpa(True), (2, 5, 8))
    if hasattr(nn, "RMSNorm"):
        out["rms"] = (RmsModule, (2, 5, 8))
    return out
