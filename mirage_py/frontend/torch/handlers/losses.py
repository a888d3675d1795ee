"""Losses of labels: the logits, or log-probabilities, at positions that are data."""

from __future__ import annotations

from mirage_py.frontend.torch.handlers.normalisations import log_softmax
from mirage_py.frontend.torch.handlers.reads import gather
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.views import NamedArray

# As ATen numbers them.
_NONE, _MEAN = 0, 1


@handles("cross_entropy_loss.default")
def cross_entropy_loss(
    t: Lowering,
    x: NamedArray,
    target: NamedArray,
    weight: NamedArray | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> NamedArray:
    """-log_softmax(x) at the labels, or under probabilities."""
    axis = 1 if len(x.axes) > 1 else 0
    logs = log_softmax(t, x, axis)
    if t.torch_dtype(1).is_floating_point:
        return _of_probabilities(t, logs, target, weight, reduction, label_smoothing, axis)
    picked, total = _picked(t, logs, target, weight, ignore_index, axis)
    if not label_smoothing:
        return _reduced(t, picked, total, reduction)
    classes = t.shape(x)[axis]
    every = logs if weight is None else t.apply("mul", logs, _along(t, weight, logs, axis))
    smooth = t.apply("neg", _summed(t, every, axis))
    smooth = t.apply("where", t.apply("ne", target, ignore_index), smooth, 0.0)
    mixed = t.apply(
        "add",
        t.apply("mul", picked, 1.0 - label_smoothing),
        t.apply("mul", smooth, label_smoothing / classes),
    )
    return _reduced(t, mixed, total, reduction)


@handles("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def nll_loss(
    t: Lowering,
    logs: NamedArray,
    target: NamedArray,
    weight: NamedArray | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
) -> NamedArray:
    """-logs at the labels."""
    axis = 1 if len(logs.axes) > 1 else 0
    picked, total = _picked(t, logs, target, weight, ignore_index, axis)
    return _reduced(t, picked, total, reduction)


@handles("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss_forward(
    t: Lowering,
    logs: NamedArray,
    target: NamedArray,
    weight: NamedArray | None,
    reduction: int,
    ignore_index: int,
) -> tuple[NamedArray, NamedArray]:
    """The same, and the weight of all labels together."""
    axis = 1 if len(logs.axes) > 1 else 0
    picked, total = _picked(t, logs, target, weight, ignore_index, axis)
    return _reduced(t, picked, total, reduction), total


def _picked(
    t: Lowering,
    logs: NamedArray,
    target: NamedArray,
    weight: NamedArray | None,
    ignore_index: int,
    axis: int,
) -> tuple[NamedArray, NamedArray]:
    """Minus what is at the labels times their weights, 0 where they are to be ignored; and the sum
    of the weights that count.
    """
    at = views.unsqueeze(t.builder, target, axis)
    found = t.apply("neg", views.squeeze(t.builder, gather(t, logs, axis, at), axis))
    kept = t.apply("ne", target, ignore_index)
    heavy: NamedArray | float = 1.0
    if weight is not None:
        flat = views.reshape(t.builder, target, (-1,))
        heavy = views.reshape(t.builder, gather(t, weight, 0, flat), t.shape(target))
        found = t.apply("mul", found, heavy)
    found = t.apply("where", kept, found, 0.0)
    counted = kept if weight is None else t.apply("where", kept, heavy, 0.0)
    return found, _summed(t, counted)


def _of_probabilities(
    t: Lowering,
    logs: NamedArray,
    target: NamedArray,
    weight: NamedArray | None,
    reduction: int,
    label_smoothing: float,
    axis: int,
) -> NamedArray:
    if label_smoothing:
        uniform = label_smoothing / t.shape(logs)[axis]
        target = t.apply("add", t.apply("mul", target, 1.0 - label_smoothing), uniform)
    terms = t.apply("mul", logs, target)
    if weight is not None:
        terms = t.apply("mul", terms, _along(t, weight, logs, axis))
    losses = t.apply("neg", _summed(t, terms, axis))
    count = 1
    for extent in t.shape(losses):
        count *= extent
    return _reduced(t, losses, count, reduction)


def _reduced(
    t: Lowering, losses: NamedArray, total: NamedArray | float, reduction: int
) -> NamedArray:
    if reduction == _NONE:
        return losses
    whole = _summed(t, losses)
    return t.apply("div", whole, total) if reduction == _MEAN else whole


def _summed(t: Lowering, x: NamedArray, axis: int | None = None) -> NamedArray:
    """The sum over one axis, or over all."""
    gone = range(len(x.axes)) if axis is None else (axis,)
    dims = [d for n in gone for d in x.axes[n]]
    left = tuple(a for n, a in enumerate(x.axes) if n not in gone)
    return NamedArray(t.builder.sum(x.node, dims), left)


def _along(t: Lowering, weight: NamedArray, like: NamedArray, axis: int) -> NamedArray:
    """A weight of each class, with the axes of the logits."""
    shape = [1] * len(like.axes)
    shape[axis] = -1
    return views.reshape(t.builder, weight, shape)
