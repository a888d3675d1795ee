"""Shifts of exponentials in base 2.

The hardware's exponential is 2^x, so exp(z - m) is emitted as exp2(z * log2(e) - M) with the shift
kept as M = m * log2(e): one fused multiply-add an element. Any shift is legal (stabilize.py),
and since M itself is what is stored, subtracted and rescaled by, its rounding cancels.
"""

from __future__ import annotations

from mirage_py.ugraph.ugraph import BlockGraph

LOG2_E = "1.4426950408889634"


class BaseTwoShifts:
    """Which shifts of a block graph are kept in base 2, and which subtractions vanish into exp2."""

    def __init__(self, block: BlockGraph) -> None:
        users: list[list[int]] = [[] for _ in block.nodes]
        for number, node in enumerate(block.nodes):
            for argument in node.args:
                users[argument].append(number)
        self.shifts: list[int] = []
        # exp -> (argument before the subtraction, shift)
        self.exponents: dict[int, tuple[int, int]] = {}
        self.subtractions: list[int] = []
        for number, node in enumerate(block.nodes):
            is_shift = node.op == "shift" or (node.op == "accum_max" and node.attr == "shift")
            if not is_shift:
                continue
            differences = [u for u in users[number] if block.nodes[u].op != "accum_rescaled"]
            exps = [e for d in differences for e in users[d]]
            plain = all(
                block.nodes[d].op == "sub" and block.nodes[d].args[1] == number for d in differences
            )
            if not plain or any(block.nodes[e].op != "exp" for e in exps):
                continue
            self.shifts.append(number)
            self.subtractions.extend(differences)
            for d in differences:
                for e in users[d]:
                    self.exponents[e] = (block.nodes[d].args[0], number)
