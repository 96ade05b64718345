"""Functions of PyTorch that its exporter to ONNX lacks or changes; torch.nn's modules call them too."""
from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from ._program import Error


def _reduce(x: Tensor, reduction: str) -> Tensor:
    return x if reduction == "none" else x.sum() if reduction == "sum" else x.mean()


def _current(size_average: Any, reduce: Any) -> None:
    if size_average is not None or reduce is not None:
        raise Error("size_average and reduce are out of date in PyTorch; write reduction='mean', 'sum' or 'none'")


def _elementwise(of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns a loss that reduces of(input, target, ...)."""
    def loss(*args: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", **kw: Any) -> Tensor:
        _current(size_average, reduce)
        return _reduce(of(*args, **kw), reduction)
    return loss


def _huber(x: Tensor, y: Tensor, delta: float = 1.0, weight: Optional[Tensor] = None) -> Tensor:
    d = (x - y).abs()
    out = torch.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta))
    return out if weight is None else out * weight


def _smooth_l1(x: Tensor, y: Tensor, beta: float = 1.0) -> Tensor:
    return (x - y).abs() if beta == 0 else _huber(x, y, beta) / beta


def _bce(x: Tensor, y: Tensor, weight: Optional[Tensor] = None) -> Tensor:
    def log(p: Tensor) -> Tensor:  # as PyTorch's, -100 for 0; the gradient of a clamped log(0) is no number
        zero = (p <= 0).to(p.dtype)
        return (p + zero).log() - 100 * zero
    out = -(y * log(x) + (1 - y) * log(1 - x))
    return out if weight is None else out * weight


def _bce_logits(x: Tensor, y: Tensor, weight: Optional[Tensor] = None, pos_weight: Optional[Tensor] = None) -> Tensor:
    """Is finite where the exporter's log(sigmoid(x)) and log(1 - sigmoid(x)) are not, as for CLIP's scores."""
    out = (1 - y) * x + F.softplus(-x) * (1 if pos_weight is None else 1 + (pos_weight - 1) * y)
    return out if weight is None else out * weight


def _norm(function: Callable[..., Tensor], usual: Any) -> Callable[..., Tensor]:
    """Returns one of PyTorch's norms as the operator ReduceL2 if it can, which has PyTorch's gradient 0 at 0."""
    def norm(x: Tensor, p: Any = usual, dim: Any = None, keepdim: bool = False, **kw: Any) -> Tensor:
        p = kw.pop("ord", p)
        vector = function is not torch.linalg.norm or isinstance(dim, int)
        if kw or p not in ((None, "fro", 2) if vector else (None, "fro")):
            return function(x, p, dim, keepdim, **kw)
        axes = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return torch._VF.norm(x, 2, axes, keepdim)
    return norm


_vector_norm = _norm(torch.linalg.vector_norm, 2)


def _pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    return _vector_norm(x1 - x2 + eps, p, -1, keepdim)


def _cdist(x: Tensor, y: Tensor, p: float = 2, compute_mode: str = "") -> Tensor:
    return _vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def _std(input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
         correction: Any = None) -> Tensor:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    lost = int(unbiased) if correction is None else correction
    n = torch.ones_like(input).sum(axes, keepdim=keepdim)
    return _vector_norm(input - input.mean(axes, keepdim=True), 2, axes, keepdim) / (n - lost).sqrt()


def _triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
             eps: float = 1e-6, swap: bool = False) -> Tensor:
    def distance(a: Tensor, b: Tensor) -> Tensor:
        return _pairwise_distance(a, b, p, eps)
    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return (margin + distance(anchor, positive) - far).clamp(min=0)


def _cosine_embedding(a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0) -> Tensor:
    c = F.cosine_similarity(a, b, -1)
    return torch.where(target > 0, 1 - c, (c - margin).clamp(min=0))


def _cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Any = None,
                   ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
                   label_smoothing: float = 0.0) -> Tensor:
    """Takes label smoothing, weights of classes and targets that are probabilities [B,C]."""
    _current(size_average, reduce)
    q, kept = target, torch.ones((), dtype=input.dtype)
    if not target.is_floating_point():
        if weight is None and not label_smoothing:
            return F.cross_entropy(input, target, ignore_index=ignore_index, reduction=reduction)
        kept = (target != ignore_index).unsqueeze(1).to(input.dtype)
        q = (target.unsqueeze(1) == torch.arange(input.shape[1], device=input.device)).to(input.dtype) * kept
    shares = q
    if label_smoothing:
        q = q * (1 - label_smoothing) + kept * (label_smoothing / input.shape[1])
    if weight is not None:
        q, shares = q * weight, shares * weight
    out = -(q * F.log_softmax(input, 1)).sum(1)
    if reduction == "mean" and not target.is_floating_point():
        return out.sum() / shares.sum()
    return _reduce(out, reduction)


def _mse(x: Tensor, y: Tensor, weight: Optional[Tensor] = None, size_average: Any = None, reduce: Any = None,
         reduction: str = "mean") -> Tensor:
    """Divides the sum by that of the weights, as PyTorch from 2.6 on does."""
    _current(size_average, reduce)
    if weight is None:
        return _reduce((x - y) ** 2, reduction)
    out = weight * (x - y) ** 2
    return out.sum() / weight.sum() if reduction == "mean" else _reduce(out, reduction)


def _layer_norm(x: Tensor, normalized_shape: Any, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                eps: float = 1e-5) -> Tensor:
    axes = list(range(-len(normalized_shape), 0))
    d = x - x.mean(axes, keepdim=True)
    out = d / ((d * d).mean(axes, keepdim=True) + eps).sqrt()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Adds up the parts of equal indices, of which the exporter keeps one."""
    parts = (torch.arange(input.shape[dim]).unsqueeze(1) == index).to(input.dtype)
    total = parts @ source.movedim(dim, 0).reshape(index.shape[0], -1)
    return input + alpha * total.reshape(input.movedim(dim, 0).shape).movedim(0, dim)


REPLACED: Dict[Any, Callable[..., Tensor]] = {
    F.cross_entropy: _cross_entropy, F.layer_norm: _layer_norm,
    F.mse_loss: lambda input, target, size_average=None, reduce=None, reduction="mean", weight=None:
        _mse(input, target, weight, size_average, reduce, reduction),
    F.l1_loss: _elementwise(lambda x, y, weight=None: (x - y).abs() if weight is None else weight * (x - y).abs()),
    F.smooth_l1_loss: _elementwise(_smooth_l1), F.huber_loss: lambda x, y, reduction="mean", delta=1.0, weight=None:
        _reduce(_huber(x, y, delta, weight), reduction),
    F.binary_cross_entropy: _elementwise(_bce), F.binary_cross_entropy_with_logits: _elementwise(_bce_logits),
    F.multilabel_soft_margin_loss: _elementwise(lambda x, y, weight=None: _bce_logits(x, y, weight).mean(-1)),
    F.logsigmoid: lambda input: -F.softplus(-input), F.triplet_margin_loss: _elementwise(_triplet),
    F.cosine_embedding_loss: _elementwise(_cosine_embedding),
    F.soft_margin_loss: _elementwise(lambda x, y: F.softplus(-y * x)),
    F.margin_ranking_loss: _elementwise(lambda a, b, y, margin=0.0: (margin - y * (a - b)).clamp(min=0)),
    F.hinge_embedding_loss: _elementwise(
        lambda x, y, margin=1.0: torch.where(y > 0, x, (margin - x).clamp(min=0))),
    **dict.fromkeys((torch.expm1, torch.Tensor.expm1), lambda input: input.exp() - 1),
    torch.logaddexp: lambda input, other: torch.stack([input, other]).logsumexp(0),
    **dict.fromkeys((torch.trace, torch.Tensor.trace), lambda input: (input * torch.eye(*input.shape)).sum()),
    torch.norm: _norm(torch.norm, "fro"), torch.Tensor.norm: _norm(torch.Tensor.norm, "fro"),
    torch.linalg.norm: _norm(torch.linalg.norm, None), torch.linalg.vector_norm: _vector_norm,
    F.pairwise_distance: _pairwise_distance, torch.cdist: _cdist, torch.std: _std, torch.Tensor.std: _std,
    torch.index_add: _index_add, torch.Tensor.index_add: _index_add,
    **dict.fromkeys((torch.floor_divide, torch.Tensor.floor_divide, torch.Tensor.__floordiv__),
                    lambda input, other: torch.div(input, other, rounding_mode="floor")),  # the exporter rounds to zero
}
