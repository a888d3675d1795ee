"""The second tier of verification: do the laws lead from the program to a µGraph?

All kernels count, library calls and atomic sums among them, and the shifts of exponentials as they
are in the µGraph. What was found is replayed by a checker that knows nothing of how it was found.
"""

from __future__ import annotations

from mirage_py.axioms.proof_check import goal_fault
from mirage_py.axioms.proof_find import find_proof
from mirage_py.axioms.proof_kernels import goal_of
from mirage_py.axioms.proof_steps import Proof
from mirage_py.errors import MirageError
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph


def prove(program: Program, ugraph: UGraph) -> Proof | None:
    """A derivation of every output that the checker accepts; None says only that none was found.

    ``ugraph`` may have open tiles, may be stabilised or not, and may be of a program whose
    dimensions are split.
    """
    try:
        goal = goal_of(program, ugraph)
    except MirageError:
        return None
    proof = find_proof(goal)
    return None if proof is None or goal_fault(goal, proof) else proof
