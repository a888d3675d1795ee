"""A call like an earlier one, served without a look at the tables of the decorated function.

Whether it is like that one is a question to torch (``runtime/launch/tensor_guard.py``) and a few
comparisons, which cover all that a signature consists of. Where one fails nothing is decided: the
tables are asked as at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_is_leaf

from mirage_py.frontend.dynamic_axes import marks_of
from mirage_py.frontend.entries import Entry
from mirage_py.frontend.torch.guards.call_key import Call, ambient, has_strides
from mirage_py.frontend.torch.guards.plain_values import is_same_value
from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.runtime.launch.cached_calls import Again, ByShapes
from mirage_py.runtime.launch.tensor_guard import alike, in_dual_level
from mirage_py.shapes.dispatch import Row

_LISTS = (list, tuple)
_CONTAINERS = (*_LISTS, dict)

# What a repeat gives for a call that is another.
ANOTHER = object()

# The arguments of a call to its result, to the Rest of it, or to ANOTHER.
Repeat = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


class Rest:
    """The rest of a call, which takes its arguments: where it fails, the call is not begun again,
    as it may write to tensors, or is the function itself, whose errors are the caller's.
    """

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class RepeatedCalls:
    """Repeats of one function's calls: the last one, and others by the shapes of tensors."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: a kernel has failed."""
        self.last: Repeat = _another
        self._known: ByShapes[Repeat] = ByShapes()

    def serve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call, ``last`` having been asked; ANOTHER for one that is new."""
        for repeat in self._known.at(_tensors(args, kwargs)):
            result = repeat(args, kwargs)
            if result is not ANOTHER:
                self.last = repeat
                return result
        return ANOTHER

    def add(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], repeat: Repeat) -> None:
        """Serve calls like this one by ``repeat``."""
        self.last = repeat
        self._known.add(_tensors(args, kwargs), repeat)


def repeat_of(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    call: Call,
    names: Sequence[str],
    entry: Entry,
    row: Row[Entry] | None,
    mode: Callable[[], object] | None,
    *,
    with_marks: bool,
) -> Repeat | None:
    """How calls like this one are served, that has just been served by the kernel of ``entry``.

    ``names`` are those of the leaves. ``mode`` is asked where it is given, marks of dynamic axes
    ``with_marks``. None where an argument is no leaf (tensors in a list), and where there is no
    tensor among them.
    """
    if call.structure is not None or entry.kernel is None or entry.traced is None:
        return None
    leaf_of = [*range(len(args)), *(names.index(name) for name in kwargs)]
    defaults = [x for n, x in enumerate(call.leaves) if n not in leaf_of]
    values = (*args, *kwargs.values())
    places = [n for n, value in enumerate(values) if isinstance(value, torch.Tensor)]
    if not places or any(isinstance(x, torch.Tensor | torch.nn.Module) for x in defaults):
        return None
    traced = entry.traced
    given = [values[n] for n in places]
    # torch.compile, or the function itself, reads what is not passed, and has guards of its own:
    # to ask for that here as well costs more than many a call.
    direct = None if traced.writes else entry.direct
    tensors_of = _reader(values, places, tuple(kwargs), traced if direct is None else None, mode)
    tensors = tensors_of(args, kwargs)
    if tensors is None:
        return None
    fits, is_same_state = alike(tensors), _state()
    may_be_asked = _before_guards(given, with_marks=with_marks)
    ours = _ours(entry, tensors, places, leaf_of) if direct is None else None

    def repeat(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        tensors = tensors_of(args, kwargs)
        if tensors is None or not may_be_asked(tensors):
            return ANOTHER
        if not fits(*tensors) or not is_same_state():
            return ANOTHER
        if row is not None:
            row.calls += 1
        if direct is not None:
            return direct(*args, **kwargs)
        return ours(tensors) if ours is not None else ANOTHER

    return repeat


def refused_repeat(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    call: Call,
    itself: Callable[..., Any],
    row: Row[Entry] | None,
    mode: Callable[[], object] | None,
    *,
    with_marks: bool,
) -> Repeat | None:
    """The same for calls that no kernel serves but the function ``itself``, or what replaces it:
    their repeat is a ``Rest``. Tensors may be in lists, tuples and dictionaries.
    """
    given = (*args, *kwargs.values())
    values = given if call.structure is None else _opened(given)
    if values is None:
        return None
    places = [n for n, value in enumerate(values) if isinstance(value, torch.Tensor)]
    open_ = None if call.structure is None else _opened
    tensors_of = _reader(values, places, tuple(kwargs), None, mode, open_)
    tensors = tensors_of(args, kwargs)
    if not tensors or not all(map(has_strides, tensors)):
        return None
    fits, is_same_state, rest = alike(tensors), _state(), Rest(itself)
    may_be_asked = _before_guards(tensors, with_marks=with_marks)

    def repeat(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        tensors = tensors_of(args, kwargs)
        if tensors is None or not may_be_asked(tensors):
            return ANOTHER
        if not fits(*tensors) or not is_same_state():
            return ANOTHER
        if row is not None:
            row.calls += 1
        return rest

    return repeat


def _opened(values: Sequence[Any]) -> Sequence[Any] | None:
    """Values, with what is in lists, tuples and dictionaries after their kind and size; None for
    other containers, and for containers in containers.
    """
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _CONTAINERS:
            inside = value.values() if kind is dict else value
            found += [kind, len(value), *(value if kind is dict else ()), *inside]
            if any(type(x) in _CONTAINERS for x in inside):
                return None
        elif isinstance(value, torch.Tensor) or tree_is_leaf(value):
            found.append(value)
        else:
            return None
    return found


def _ours(
    entry: Entry,
    tensors: Sequence[torch.Tensor],
    places: Sequence[int],
    leaf_of: Sequence[int],
) -> Callable[[Sequence[torch.Tensor]], Any]:
    """What a call gives for its tensors, of which the first are the values at ``places``."""
    traced = entry.traced
    assert traced is not None
    read = [places.index(leaf_of.index(n)) for n in traced.arguments]
    read += range(len(places), len(places) + len(traced.captured))
    run = _run_of(entry, [tensors[n] for n in read])
    if traced.writes:
        return _writer(entry, run, read, [leaf_of[n] for n in places])
    pack = _packer(traced)
    in_order: Again = run
    if read != list(range(len(tensors))):
        in_order = lambda tensors: run([tensors[n] for n in read])  # noqa: E731
    if pack is None:
        return in_order
    return lambda tensors: pack(in_order(tensors))


def _writer(
    entry: Entry, run: Again, read: Sequence[int], leaf_of: Sequence[int]
) -> Callable[[Sequence[torch.Tensor]], Any]:
    """The same for a call that writes to its tensors, of which the first are these leaves."""
    traced, direct = entry.traced, entry.direct
    assert traced is not None

    def write(tensors: Sequence[torch.Tensor]) -> Any:
        leaves = dict(zip(leaf_of, tensors, strict=False))
        if traced.overlaps(leaves):
            return ANOTHER
        if direct is not None:
            return Rest(direct)
        result = run([tensors[n] for n in read])
        outputs = result if isinstance(result, tuple) else (result,)
        return Rest(lambda *_, **__: traced.pack(outputs, leaves))

    return write


def _reader(
    values: Sequence[Any],
    places: Sequence[int],
    names: tuple[str, ...],
    traced: TracedCall | None,
    mode: Callable[[], object] | None,
    open_: Callable[[Sequence[Any]], Sequence[Any] | None] | None = None,
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[torch.Tensor] | None]:
    """The tensors of a call, those that the function takes from elsewhere last; None where what
    is no tensor, or how the call is spelled (the last ones by ``names``), is not as it was. What is
    in containers ``open_`` takes out.
    """
    count = len(values)
    others = [(n, v, _training(v)) for n, v in enumerate(values) if n not in places]
    fetches = [origin.fetch for origin in traced.elsewhere] if traced else []
    is_current = traced.is_current if traced and traced.state.holders else None
    mode_then = mode() if mode is not None else None

    def tensors_alone(
        args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Sequence[torch.Tensor] | None:
        return None if kwargs or len(args) != count else args

    if not (others or fetches or names or mode or is_current or open_):
        return tensors_alone

    def tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        given = (*args, *kwargs.values()) if kwargs else args
        values = given if open_ is None else open_(given)
        if values is None or len(values) != count or tuple(kwargs) != names:
            return None
        for place, value, training in others:
            given = values[place]
            if given is not value and not is_same_value(given, value):
                return None
            if training is not None and given.training is not training:
                return None
        if mode is not None and mode() != mode_then:
            return None
        if is_current is not None and not is_current():
            return None
        return [*[values[n] for n in places], *[fetch() for fetch in fetches]]

    return tensors


def _before_guards(
    given: Sequence[torch.Tensor], *, with_marks: bool
) -> Callable[[Sequence[torch.Tensor]], bool]:
    """Whether torch's guards may be asked of values, of which the first are marked as these are
    (``with_marks``): torch ends the process that asks them of a nested tensor.
    """
    marks, count = marks_of(given) if with_marks else (), len(given)

    def may_be_asked(values: Sequence[torch.Tensor]) -> bool:
        has_marks = bool(marks)
        try:
            for value in values:
                if value.is_nested:
                    return False
                # Marks are attributes, which a tensor rarely has any of.
                if with_marks and value.__dict__:
                    has_marks = True
        except AttributeError:  # no tensor
            return False
        return not has_marks or marks_of(values[:count]) == marks

    return may_be_asked


def _another(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG001
    return ANOTHER


def _tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    found = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif type(value) in _LISTS:
            found += [x for x in value if isinstance(x, torch.Tensor)]
    return found


def _training(value: Any) -> bool | None:
    return value.training if isinstance(value, torch.nn.Module) else None


def _state() -> Callable[[], bool]:
    """Whether the state of torch that is part of a signature is what it is now: grad mode,
    autocast, the default type. torch's own guard asks for a little more, in one call.
    """
    try:
        from torch._C._dynamo.guards import GlobalStateGuard
    except ImportError:
        then = ambient()
        return lambda: ambient() == then and not in_dual_level()
    check: Callable[[], bool] = GlobalStateGuard().check
    return lambda: check() and not in_dual_level()


def _run_of(entry: Entry, inputs: Sequence[torch.Tensor]) -> Again:
    """The kernel, without its own guard where it has one and these inputs passed it."""
    kernel: Any = entry.kernel
    ask = getattr(kernel, "again", None)
    again: Again | None = ask(inputs) if ask is not None else None
    return again or (lambda inputs: kernel(*inputs))


def _packer(traced: TracedCall) -> Callable[[Any], Any] | None:
    """What makes of a kernel's result what the function returns; None where they are the same."""
    if traced.writes:
        return None
    if traced.is_rearranged:
        return lambda result: traced.pack(result if isinstance(result, tuple) else (result,))
    count = len(traced.program.outputs)
    probe: Any = tuple(object() for _ in range(count))
    packed = traced.pack(probe)
    if packed is probe[0] if count == 1 else type(packed) is tuple and packed == probe:
        return None
    return lambda result: traced.pack(result if isinstance(result, tuple) else (result,))
