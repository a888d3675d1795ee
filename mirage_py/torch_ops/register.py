"""``as_torch_op``: one operator of torch for one plan.

Where every step of the plan is a Triton kernel, the operator is a ``triton_op`` whose body launches
them through ``wrap_triton``: torch.compile sees the kernels and may plan memory and graphs around
them. Others (library calls, CUDA) are opaque ``custom_op``s. Each has a fake kernel, a CPU kernel
(the program in plain PyTorch), and a gradient by recomputation. The body of an operator calls no
operator that was made here.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import InputError
from mirage_py.runtime.base.emission import Step, ZeroFill, emit_steps
from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.sized.sized_launch import runner_of
from mirage_py.torch_ops.direct import register_direct
from mirage_py.torch_ops.meaning import OperatorMeaning
from mirage_py.ugraph.checks.run_time_sizes import at_sizes
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
_LOCK = threading.Lock()
# What each name stands for: torch keeps an operator as long as the process lives.
_KNOWN: dict[str, str] = {}

# (inputs, gradients of the results) -> gradients of the inputs
Backward = Callable[
    [Sequence[torch.Tensor], Sequence[torch.Tensor | None]], Sequence[torch.Tensor | None]
]


def as_torch_op(
    name: str, program: Program, plan: Plan | None, backward: Backward | None = None
) -> Any:
    """Register a plan of ``program`` as ``torch.ops.NAMESPACE.NAME``, and return that.

    Its arguments are the program's inputs by their names. ``backward`` replaces the gradient by
    recomputation. Raises InputError for a name that is none or that is taken by another plan, and
    where there is no plan because the function itself is the fastest.
    """
    if _NAME.fullmatch(name) is None:
        raise InputError(f"'{name}' is no name of an operator", repair='use "namespace::name"')
    if plan is None:
        raise InputError(
            f"'{name}' would have no kernel of its own",
            why="the function itself is what serves these arguments",
            repair="call the function",
        )
    content = f"{program.digest} {plan!r}"
    with _LOCK:
        if _KNOWN.get(name, content) != content:
            raise InputError(
                f"'{name}' is another operator already",
                why="torch keeps operators as long as the process lives",
                repair="choose another name",
            )
        if name not in _KNOWN:
            _register(name, program, plan, backward)
            _KNOWN[name] = content
    namespace, _, short = name.partition("::")
    return getattr(getattr(torch.ops, namespace), short)


def is_all_triton(steps: Sequence[Step]) -> bool:
    """Whether torch.compile can look into the operator."""
    return all(
        isinstance(s, ZeroFill) or (isinstance(s, TritonKernel) and not s.text.tiles) for s in steps
    )


def _register(name: str, program: Program, plan: Plan, backward: Backward | None) -> None:
    meaning = OperatorMeaning(program, plan)
    steps = emit_steps(plan)
    operator: Any
    if is_all_triton(steps):
        body = _signed(_launches(plan, steps, meaning), program)
        operator = torch.library.triton_op(name, body, mutates_args=())
    else:
        plain = _signed(lambda *x: _results(meaning.reference(x)), program)
        operator = torch.library.custom_op(name, plain, mutates_args=())
        operator.register_fake(_signed(lambda *x: _results(meaning.empty(x)), program))
    # Outside of compiled graphs: the same kernels with less to do in a call.
    register_direct(operator, name, "CUDA", runner_of(plan))
    register_direct(operator, name, "CPU", lambda *x: _results(meaning.reference(x)))
    _register_gradient(operator, meaning, backward)


def _register_gradient(operator: Any, meaning: OperatorMeaning, backward: Backward | None) -> None:
    gradients = backward or meaning.gradients

    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        del output  # the gradient computes what it needs again
        ctx.save_for_backward(*inputs)

    def backward_of(ctx: Any, *upstream: torch.Tensor | None) -> Any:
        found = gradients(ctx.saved_tensors, upstream)
        return tuple(
            g if wanted else None for g, wanted in zip(found, ctx.needs_input_grad, strict=True)
        )

    operator.register_autograd(backward_of, setup_context=setup_context)


def _launches(plan: Plan, steps: Sequence[Step], meaning: OperatorMeaning) -> Callable[..., Any]:
    """Every kernel of a plan, launched through torch, so that a compiler sees the launches."""
    planned = plan.ugraph
    functions = {
        s.name: getattr(load_module(s.source, s.name), s.name)
        for s in steps
        if isinstance(s, TritonKernel)
    }

    def run(*inputs: torch.Tensor) -> Any:
        if inputs[0].device.type == "cpu":
            return _results(meaning.reference(inputs))
        outputs = meaning.empty(inputs)
        sizes = meaning.sizes(inputs)
        ugraph = at_sizes(plan, sizes).ugraph if sizes else planned
        held = {t.name: x for t, x in zip(ugraph.program.inputs, inputs, strict=True)}
        held = {t.name: _laid_out(held[t.name], t) for t in ugraph.program.inputs}
        held |= {o.tensor.name: x for o, x in zip(ugraph.program.outputs, outputs, strict=True)}
        held |= {t.name: _fresh(t, inputs[0]) for t in ugraph.intermediates}
        strides = {t: x.stride() for t, x in held.items()}
        for step in steps:
            if isinstance(step, ZeroFill):
                held[step.tensor].zero_()
                continue
            assert isinstance(step, TritonKernel)
            scalars = [s.value(ugraph.program.sizes, strides) for s in step.text.scalars]
            grid = (step.text.blocks(ugraph.program.sizes),)
            # None uses programmatic dependent launch: a compiler may put what writes an input of
            # the second kernel between both, and that kernel reads inputs before it waits.
            launch = torch.library.wrap_triton(functions[step.name])[grid]
            pointers = (held[t.name] for t in step.pointers)
            launch(*pointers, *scalars, num_warps=step.options.num_warps)
        return _results(outputs)

    return run


def _laid_out(value: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """The input as the kernels address it; a copy where it lies otherwise."""
    if tensor.strides is None:
        return value.contiguous()
    if value.stride() == tensor.strides:
        return value
    return value.new_empty_strided(value.shape, tensor.strides).copy_(value)


def _fresh(tensor: Tensor, like: torch.Tensor) -> torch.Tensor:
    dtype = getattr(torch, tensor.dtype.torch_name)
    return torch.empty(tensor.shape, dtype=dtype, device=like.device)


def _results(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    return tensors[0] if len(tensors) == 1 else tensors


def _signed(fn: Callable[..., Any], program: Program) -> Callable[..., Any]:
    """A function with the signature that torch reads the operator's schema from."""

    def call(*args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        return fn(*args, *kwargs.values())

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(_identifier(t.name), kind, annotation=torch.Tensor)
        for t in program.inputs
    ]
    count = len(program.outputs)
    returned = torch.Tensor if count == 1 else tuple[(torch.Tensor,) * count]  # type: ignore[misc]
    call.__signature__ = inspect.Signature(parameters, return_annotation=returned)  # type: ignore[attr-defined]
    return call


def _identifier(name: str) -> str:
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return clean if clean[:1].isalpha() else f"x{clean}"
