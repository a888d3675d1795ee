"""The proof tier of verification: derives a µGraph from its program by the laws.

All kernels count, library calls and atomic sums among them, and the shifts of exponentials as they
are in the µGraph. The result is a certificate. The checker that replays it shares no code with the
proof search.
"""

from __future__ import annotations

from dataclasses import replace

from mirage_py.axioms.certificate.checker import fault_of, needs_of
from mirage_py.axioms.proof.find import find_proof
from mirage_py.axioms.proof.goal import dims_made_of
from mirage_py.axioms.proof.kernel_terms import goal_of
from mirage_py.axioms.proof.steps import Proof
from mirage_py.errors import MirageError
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.json_form import to_json


def prove(program: Program, ugraph: UGraph) -> Proof | None:
    """A certificate for every output that the checker accepts; None says only that none was found.

    ``ugraph`` may have open tiles, may be stabilised or not, and may be of a program whose
    dimensions are split.
    """
    try:
        goal = goal_of(program, ugraph)
        proof = find_proof(goal)
    except MirageError:
        return None
    if proof is None:
        return None
    documents, dims = (to_json(program), to_json(ugraph)), dims_made_of(program, ugraph)
    proof = replace(proof, dims=dims, cut=goal.cut, calls=goal.calls)
    proof = replace(proof, needs=tuple(needs_of(*documents, proof.document())))
    return None if fault_of(*documents, proof.document()) else proof
