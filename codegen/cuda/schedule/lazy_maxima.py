"""The condition under which a running maximum may lag by a factor of 2^8.

With a maximum that lags behind, exponentials are at most 2^8, not 1. Float32 and bfloat16 have room
for that. Float16 holds the exponentials too, but not always their product with another number, nor
a sum of them before it is divided.
"""

from __future__ import annotations

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.ugraph.ir.dtypes import BOOL

# Types that hold less than this notice 2^8.
_WIDE = 1e30


def has_room(facts: BlockAnalysis, peak: int) -> bool:
    """Whether no narrow type holds anything else of its exponentials than these, as they are or
    masked, and what has been divided by their sum.
    """
    nodes, dtypes = facts.block.nodes, facts.dtypes
    # In which power the factor is in a value, and which values are exponentials.
    powers: dict[int, int] = {}
    plain: set[int] = set()
    for number, node in enumerate(nodes):
        have = [powers.get(a, 0) for a in node.args]
        if node.op == "exp" and peak in nodes[node.args[0]].args:
            is_shifted = nodes[node.args[0]].args[0] != peak
            powers[number] = 1 if is_shifted else -1  # exp(peak - y) takes the factor out again
            if is_shifted:
                plain.add(number)
            continue
        if not any(have):
            continue
        if node.op in ("mul", "matmul"):
            powers[number] = sum(have)
        elif node.op == "div":
            powers[number] = have[0] - have[1]
        elif node.op == "reciprocal_no_nan":
            powers[number] = -have[0]
        else:
            powers[number] = max(have)
        masked = node.op in ("mul", "where") and any(dtypes[a] == BOOL for a in node.args)
        if (masked or node.op == "cast") and plain.intersection(node.args):
            plain.add(number)
        is_narrow = dtypes[number].is_float and dtypes[number].max_finite < _WIDE
        if is_narrow and powers[number] > 0 and number not in plain:
            return False
    return True
