"""``mirage_py.check``: anybody's own kernel against the function that it stands for."""

from __future__ import annotations

from typing import Any

from mirage_py.arguments import check_type, shown
from mirage_py.checking.check_report import CheckReport
from mirage_py.checking.numbers import compare_numbers
from mirage_py.checking.sides import Function, side_of
from mirage_py.checking.two_programs import compare_algebra
from mirage_py.errors import InputError
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.numerical_check import MAX_REFERENCE_WORK

# Of each set of inputs so much is evaluated in float64, unless all of it is asked for.
_QUICK_WORK = MAX_REFERENCE_WORK / 10


def check(
    reference: Function | Program | str,
    kernel: Function | Program | str,
    *example_inputs: Any,
    seed: int = 0,
    thorough: bool = False,
) -> CheckReport:
    """Check that ``kernel`` computes what ``reference`` does, on inputs like the examples.

    ``reference`` is a torch function, the text of a math spec, or a Program. ``kernel`` is any
    callable: a function that launches Triton or CUDA, a torch operator, a compiled
    module. With a spec or a Program it takes the program's inputs in order, and there are no
    examples.

    The kernel runs on random and adversarial inputs, on the device of the examples. Its
    results are compared with float64, within what rounding explains on these inputs, and with
    the results of the reference in eager PyTorch. If the kernel can be traced too, or is a
    spec or a Program, both are compared over finite fields, where equality is exact, and a proof by
    algebraic laws is attempted. ``thorough`` compares ten times as many elements of large outputs.

    The report says what was found and what was not checked. ``report.passed`` is the verdict;
    ``report.require()`` raises VerificationError. Raises InputError or UnsupportedError if the
    reference is no program. Errors raised by the kernel are in the report.
    """
    check_type("seed", seed, (int,))
    if not (callable(kernel) or isinstance(kernel, Program | str)):
        raise InputError(
            f"'kernel' is {shown(kernel)}", repair="pass a function on tensors, a spec or a program"
        )
    side = side_of(reference, example_inputs)
    numbers = None
    if callable(kernel):
        work = MAX_REFERENCE_WORK if thorough else _QUICK_WORK
        numbers = compare_numbers(side, kernel, seed=seed, max_work=work)
    algebra = compare_algebra(side, kernel, seed=seed)
    name = getattr(kernel, "__name__", type(kernel).__name__) if callable(kernel) else "the program"
    return CheckReport(name, side.program, str(side.device), numbers, algebra)
