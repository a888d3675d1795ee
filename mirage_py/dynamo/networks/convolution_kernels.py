"""Convolutions and pools of an ATen graph fused with the code around them.

A convolution with a constant weight, or a pool, is fused with constants and a tensor added to it,
and with a relu before and after it. Nothing is decided here: ``matches`` finds what could be one
kernel, and ``with_kernels`` inserts kernels for which tiles were chosen.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mirage_py.dynamo.networks.convolution_op import convolution_operator
from mirage_py.dynamo.networks.pools import pools
from mirage_py.runtime.launch.convolutions.weights import weight_form
from mirage_py.search.networks.convolutions.window_tiles import is_over_windows
from mirage_py.ugraph.ir.convolution import ConvolutionPlan, FusedConvolution, plan_text

_aten = torch.ops.aten
# What a constant may be seen through.
_VIEWS = (
    _aten.view.default, _aten.reshape.default, _aten.unsqueeze.default, _aten.permute.default,
    _aten.transpose.int, _aten.t.default,
)  # fmt: skip
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclass(frozen=True)
class Match:
    """A convolution that could be a kernel: ``last`` is the node that its result replaces. Of a
    product of matrices (``is_rows``) the rows of image and residual are places along one axis.
    """

    spec: FusedConvolution
    image: Node
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    residual: Node | None
    last: Node
    is_rows: bool = False


def matches(module: GraphModule, constants: Mapping[str, torch.Tensor]) -> list[Match]:
    """What could be kernels, no node in two of them; ``constants`` are the placeholders' tensors
    that are weights. Relus and terms are moved to where kernels take them.
    """
    known = Constants(module, constants)
    _move_relus(module)
    _flatten_splits(module)
    _move_splits(module, known)
    module.graph.lint()
    found: list[Match] = []
    taken: set[Node] = set()
    for node in module.graph.find_nodes(
        op="call_function", target=_aten.convolution.default, sort=True
    ):
        match = _match(node, known, taken)
        if match is not None:
            found.append(match)
    # Sums that a convolution takes in are none of a pool's.
    for pool in pools(module):
        match = _around(pool.result, pool.spec, pool.image, None, None, known, taken)
        if match is not None:
            found.append(match)
    return found


def with_kernels(
    module: GraphModule,
    found: Sequence[Match],
    plans: Mapping[FusedConvolution, ConvolutionPlan],
) -> int:
    """Put kernels in the place of the matches that have plans; how many."""
    target = convolution_operator()
    count = 0
    # By where they stand: the image of one may be the result of another.
    replaced: dict[Node, Node] = {}
    for match in found:
        chosen = plans.get(match.spec)
        if chosen is None:
            continue
        with module.graph.inserting_before(match.last):
            weight = bias = None
            if match.weight is not None:
                packed = weight_form(match.spec, chosen).packed(match.weight)
                weight = held(module, f"packed_weight{count}", packed)
            if match.bias is not None:
                bias = held(module, f"kernel_bias{count}", match.bias)
            given = [
                None if n is None else _as_image(module.graph, replaced.get(n, n), match)
                for n in (match.image, match.residual)
            ]
            text = plan_text(match.spec, chosen)
            new = module.graph.call_function(target, (given[0], weight, bias, given[1], text))
            new = _as_rows(module.graph, new, match)
        new.meta["val"] = match.last.meta["val"]
        match.last.replace_all_uses_with(new)
        replaced[match.last] = new
        count += 1
    module.graph.eliminate_dead_code()
    module.recompile()
    return count


def _as_image(graph: torch.fx.Graph, node: Node, match: Match) -> Node:
    """Rows of a matrix as places along the first axis of an image, channels last."""
    if not match.is_rows:
        return node
    value = node.meta["val"]
    shape = [1, match.spec.height, 1, value.shape[-1]]
    wide = graph.call_function(_aten.view.default, (node, shape))
    return graph.call_function(_aten.permute.default, (wide, [0, 3, 1, 2]))


def _as_rows(graph: torch.fx.Graph, node: Node, match: Match) -> Node:
    if not match.is_rows:
        return node
    last = graph.call_function(_aten.permute.default, (node, [0, 2, 3, 1]))
    return graph.call_function(_aten.view.default, (last, list(match.last.meta["val"].shape)))


def held(module: GraphModule, name: str, tensor: torch.Tensor) -> Node:
    """A tensor as a buffer of the module, read where nodes are inserted."""
    while hasattr(module, name):
        name += "_"
    module.register_buffer(name, tensor)
    return module.graph.get_attr(name)


class Constants:
    """Tensors of a graph that do not change."""

    def __init__(self, module: GraphModule, given: Mapping[str, torch.Tensor]) -> None:
        self.module, self._given = module, given

    def of(self, node: Any) -> torch.Tensor | None:
        """The tensor of a node, where it is a constant."""
        if not isinstance(node, Node):
            return None
        if node.op == "placeholder":
            return self._given.get(str(node.target), self._given.get(node.name))
        if node.op == "call_function" and node.target in _VIEWS:
            seen, *rest = node.args
            whole = self.of(seen)
            view: Any = node.target
            return None if whole is None else view(whole, *rest, **node.kwargs)
        if node.op != "get_attr":
            return None
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value.detach() if isinstance(value, torch.Tensor) else None

    def of_channels(self, node: Any, result: torch.Tensor) -> torch.Tensor | None:
        """A constant that is one number a channel of an image, as a vector."""
        value = self.of(node)
        if value is None or value.dtype != result.dtype:
            return None
        wide = (1,) * (result.dim() - value.dim()) + tuple(value.shape)
        channels = result.shape[1]
        is_vector = wide == (1, channels, *(1,) * (result.dim() - 2))
        return value.reshape(channels) if is_vector else None


def _is(node: Any, target: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target == target


def _only_user(node: Node) -> Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _is_sum(node: Any) -> bool:
    return _is(node, _aten.add.Tensor) and len(node.args) == 2 and not node.kwargs


def _move_relus(module: GraphModule) -> None:
    """A relu of a relu is one; one of a concatenation is one of each part, which made the part."""
    graph = module.graph
    node: Node
    for node in list(graph.find_nodes(op="call_function", target=_aten.relu.default)):
        whole: Any = node.args[0]
        if _is(whole, _aten.relu.default):
            node.replace_all_uses_with(whole)
            graph.erase_node(node)
            continue
        if not _is(whole, _aten.cat.default) or _only_user(whole) is not node:
            continue
        with graph.inserting_before(whole):
            parts = []
            for part in whole.args[0]:
                is_done = _is(part, _aten.relu.default)
                new = part if is_done else graph.call_function(_aten.relu.default, (part,))
                new.meta.setdefault("val", part.meta["val"])
                parts.append(new)
        whole.update_arg(0, parts)
        node.replace_all_uses_with(whole)
        graph.erase_node(node)


def _flatten_splits(module: GraphModule) -> None:
    """A piece that is split again, and that nothing else reads, is several pieces."""
    target = _aten.split_with_sizes.default
    inner: Any
    for inner in module.graph.find_nodes(op="call_function", target=target):
        piece = inner.args[0]
        if not _is(piece, operator.getitem) or list(piece.users) != [inner]:
            continue
        outer = piece.args[0]
        if not _is(outer, target):
            continue
        if [*outer.args[2:], 0][0] != [*inner.args[2:], 0][0]:
            continue
        place, more = piece.args[1], list(inner.args[1])
        for other in list(outer.users):
            if other.args[1] > place:
                other.update_arg(1, other.args[1] + len(more) - 1)
        sizes = list(outer.args[1])
        outer.update_arg(1, [*sizes[:place], *more, *sizes[place + 1 :]])
        for part in list(inner.users):
            part.update_arg(0, outer)
            part.update_arg(1, part.args[1] + place)
        module.graph.erase_node(inner)
        module.graph.erase_node(piece)


def _move_splits(module: GraphModule, known: Constants) -> None:
    """What is done to each piece of a convolution's channels is done to all, before the split."""
    target = _aten.split_with_sizes.default
    split: Any
    for split in module.graph.find_nodes(op="call_function", target=target):
        arguments: tuple[Any, ...] = (*split.args, 0)
        whole, sizes, axis = arguments[:3]
        pieces: list[Any] = sorted(split.users, key=lambda n: n.args[1])
        if not isinstance(whole, Node) or not _is(whole, _aten.convolution.default):
            continue
        if axis != 1 or len(pieces) != len(sizes):
            continue
        if list(whole.users) != [split]:
            continue
        _move_terms(module, known, whole, split, pieces)


def _move_terms(
    module: GraphModule, known: Constants, whole: Node, split: Node, pieces: Sequence[Node]
) -> None:
    sums = [_only_user(piece) for piece in pieces]
    terms = [
        known.of_channels(s.args[1], piece.meta["val"])
        if s is not None and _is_sum(s) and s.args[0] is piece
        else None
        for s, piece in zip(sums, pieces, strict=True)
    ]
    if any(t is None for t in terms):
        return
    graph = module.graph
    relus = [_only_user(s) for s in sums if s is not None]
    all_relus = all(_is(r, _aten.relu.default) for r in relus)
    with graph.inserting_before(split):
        term = torch.cat([t for t in terms if t is not None])
        term = term.reshape(-1, *(1,) * (whole.meta["val"].dim() - 2))
        terms_node = held(module, f"terms_{split.name}", term)
        terms_node.meta["val"] = term
        new = graph.call_function(_aten.add.Tensor, (whole, terms_node))
        new.meta["val"] = whole.meta["val"]
        if all_relus:
            new = graph.call_function(_aten.relu.default, (new,))
            new.meta["val"] = whole.meta["val"]
    split.update_arg(0, new)
    for piece, old in zip(pieces, relus if all_relus else sums, strict=True):
        assert old is not None
        old.replace_all_uses_with(piece)
    graph.eliminate_dead_code()


def _match(node: Node, known: Constants, taken: set[Node]) -> Match | None:
    arguments: tuple[Any, ...] = node.args
    image, weight, bias, stride, padding, dilation, transposed, _, groups = arguments
    assert isinstance(image, Node)
    w, b = known.of(weight), known.of(bias)
    x = image.meta["val"]
    is_taken = w is not None and not transposed and x.dim() in _FORMATS and x.dtype in TYPES
    if not is_taken or (bias is not None and b is None) or w.dtype != x.dtype:  # type: ignore[union-attr]
        return None
    assert w is not None
    sliding = [_by_axis(values, x.dim() - 2) for values in (stride, padding, dilation)]
    spec = FusedConvolution.of(tuple(x.shape), tuple(w.shape), sliding, groups, TYPES[x.dtype])
    return _around(node, spec, image, w, b, known, taken)


def _around(
    node: Node,
    bare: FusedConvolution,
    image: Node,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    known: Constants,
    taken: set[Node],
) -> Match | None:
    """A convolution or pool, whose result is ``node``, with what stands around it."""
    y = node.meta["val"]
    is_planar = is_over_windows(bare) and not y.is_contiguous(memory_format=_FORMATS[y.dim()])
    if not y.numel() or not y.is_contiguous(memory_format=_format(y, is_planar=is_planar)):
        return None
    residual: Node | None = None
    last, relu_after = node, False
    inside: list[Node] = []
    for user in _chain(node):
        if user in taken:
            break
        if _is(user, _aten.relu.default):
            last, relu_after = user, True
            inside.append(user)
            break
        other: Any = user.args[1] if user.args[0] is last else user.args[0]
        term = known.of_channels(other, y)
        if term is not None and residual is None:
            b = term if b is None else (b.double() + term.double()).to(term.dtype)
        elif residual is None and _is_like(other, y) and other is not last:
            residual = other
        else:
            break
        last = user
        inside.append(user)
    before = _is(image, _aten.relu.default) and not _is_sum_or_convolution(image.args[0])
    if before:
        (image,) = image.args  # type: ignore[assignment]
    lies = _lies(image.meta["val"], is_planar=is_planar)
    if lies is None:
        return None
    residual_lies = (0, 0)
    if residual is not None:
        residual_lies = _lies(residual.meta["val"], is_planar=is_planar) or (0, 0)
    spec = replace(
        bare,
        relu_before=before,
        has_bias=b is not None,
        has_residual=residual is not None,
        relu_after=relu_after,
        pitch=lies[0],
        offset=lies[1],
        residual_pitch=residual_lies[0],
        residual_offset=residual_lies[1],
        is_planar=is_planar,
    )
    taken.update(inside)
    return Match(spec, image, w, b, residual, last)


def _chain(node: Node) -> Iterator[Node]:
    """Sums and a relu that are the only ones to read what is before them."""
    at = _only_user(node)
    while at is not None and (_is_sum(at) or _is(at, _aten.relu.default)):
        yield at
        at = _only_user(at)


def _is_sum_or_convolution(node: Any) -> bool:
    """Whether a relu of it is probably its own kernel's."""
    return _is(node, _aten.convolution.default) or _is_sum(node)


def _is_like(node: Any, result: torch.Tensor) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return (
        isinstance(value, torch.Tensor)
        and value.shape == result.shape
        and value.dtype == result.dtype
    )


def _format(image: torch.Tensor, *, is_planar: bool) -> torch.memory_format:
    return torch.contiguous_format if is_planar else _FORMATS[image.dim()]


def _lies(image: torch.Tensor, *, is_planar: bool) -> tuple[int, int] | None:
    """How far apart places are, and where channels begin in them, of a slice of the channels of an
    image; zeros where it is whole, None where channels are not last. Of a planar image how many
    channels a sample has, and which is the first.
    """
    if image.is_contiguous(memory_format=_format(image, is_planar=is_planar)):
        return 0, 0
    space, own = image.shape[2:], image.shape[1]
    size = prod(space)
    if is_planar:
        channels, rest = divmod(int(image.stride(0)), size)
        inner = [prod(space[n + 1 :]) for n in range(len(space))]
        if channels < own or rest or image.stride() != (channels * size, size, *inner):
            return None
        offset, behind = divmod(int(image.storage_offset() % image.stride(0)), size)
        return (channels, offset) if offset + own <= channels and not behind else None
    apart = int(image.stride(-1) if space[-1] > 1 else image.stride(-2))
    inner = [prod(space[n + 1 :]) * apart for n in range(len(space))]
    # What is expanded has its places nowhere apart.
    if apart < own or image.stride() != (size * apart, 1, *inner):
        return None
    offset = int(image.storage_offset() % apart)
    return (apart, offset) if offset + own <= apart else None


def _by_axis(values: Any, axes: int) -> tuple[int, ...]:
    """A number for each axis, where one may stand for all."""
    given = tuple(map(int, values))
    return given * axes if len(given) == 1 else given
