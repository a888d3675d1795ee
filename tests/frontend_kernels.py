"""Kernels of the tests' own: an optimizer that runs each program in float64."""

from __future__ import annotations

from collections import Counter

import torch

from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program


class Interpreter:
    """An optimizer whose kernels evaluate the program; it counts what it is asked for."""

    def __init__(self) -> None:
        self.programs = []
        self.calls = Counter()

    def __call__(self, program, inputs, fallback):
        self.programs.append(program)
        names = [t.name for t in program.inputs]
        assert [tuple(x.shape) for x in inputs] == [t.shape for t in program.inputs]
        # The function itself takes the same inputs and gives the same outputs.
        self.reference = fallback(*inputs)

        def kernel(*tensors):
            self.calls[program.name] += 1
            values = {n: t.detach().double().numpy() for n, t in zip(names, tensors, strict=True)}
            results = evaluate_program(program, values, FloatMeaning())
            outputs = tuple(
                torch.from_numpy(results[o.tensor.name].copy()).float() for o in program.outputs
            )
            return outputs[0] if len(outputs) == 1 else outputs

        kernel.description = f"kernel {len(self.programs)}"
        return kernel
