"""Register-resident left operands of wgmma that a loop keeps from one iteration to the next.

ptxas 12.8 and 13.0 miscompile them. If a loop computes the operand of another wgmma in as many
registers, and a branch lies between the two, both get the same registers: from the second iteration
on the first wgmma silently reads what was computed for the second. Such a branch comes from the
vote of the launch option ``rescaling``, the spin wait for row reductions of producer warps, and the
slow paths of division, root, power and log1p. So the operand is copied to other registers in each
iteration; ptxas keeps those apart. On an H200 that costs less than reading the operand from shared
memory again, by ``ldmatrix`` or by a descriptor.

Machine code that still has the fault is refused (``runtime/sass/shared_registers.py``).
"""

from __future__ import annotations

from mirage_py.codegen.cuda.mma.wgmma import WgmmaEmitter
from mirage_py.codegen.cuda.text.expressions import elementwise
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.ugraph.operators import ELEMENTWISE, operator

# What ptxas branches for, in the text of an operator. It makes straight code of expf, expm1f, logf,
# tanhf and erff.
_BRANCHING = (" / ", "sqrtf(", "powf(", "log1pf(")


class RegisterOperands:
    """Finds left operands whose registers another product would get, and writes the copy."""

    def __init__(self, emission: Emission, wgmma: WgmmaEmitter) -> None:
        self.out = emission
        self.facts = emission.facts
        self.wgmma = wgmma

    def in_iteration(self, product: int, left: Value) -> Value:
        """The left operand of a product of warp groups in registers that an iteration has for
        itself where it would lose those it has, else as it is.
        """
        if not self._is_overwritten(product):
            return left
        value = Value(self.out.fresh(f"{left.name}_now"), left.layout, left.dtype, is_packed=True)
        self.out.line(value.declaration())
        self.out.line(f"hand_over({value.name}, {left.name});")
        return value

    def _is_overwritten(self, product: int) -> bool:
        facts, products = self.facts, self.out.layouts.mmas
        section = facts.section(product)
        plan = products[product]
        if facts.sums_at_end(product) or not self._branches(section):
            return False
        if facts.section(facts.root(plan.left)) == section:
            return False
        words = plan.fragments.left.register_count
        return any(
            facts.section(n) == section
            and n != product
            and products[n].fragments.left.register_count == words
            and self._makes_its_own(n)
            for n in products
        )

    def _branches(self, section: int) -> bool:
        """Whether warps may branch in an iteration, apart from the wait at its head."""
        out = self.out
        numbers = self.facts.block.sections[section].nodes
        if out.options.rescaling or any(n in out.row_reductions for n in numbers):
            return True
        nodes = (self.facts.block.nodes[n] for n in numbers)
        texts = (
            elementwise(node.op, [f"x{n}" for n in range(len(node.args))])
            for node in nodes
            if operator(node.op).kind == ELEMENTWISE and node.op != "cast"
        )
        return any(part in text for text in texts for part in _BRANCHING)

    def _makes_its_own(self, product: int) -> bool:
        """Whether the left operand of a product of warp groups is made in its iteration, in
        registers. That of a late product is made while the product before it is under way.
        """
        facts, plan = self.facts, self.out.layouts.mmas[product]
        left = facts.root(plan.left)
        is_late = facts.fused.get(product) in self.wgmma.late
        return (
            plan.uses_wgmma
            and not is_late
            and facts.section(left) == facts.section(product)
            and not self.wgmma.reads_from_tile(product, left)
        )
