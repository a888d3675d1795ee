"""The registry of pattern names: a sentence for each, and the test of its structure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oracles.known_forms import attention, normalisation, products, splits
from oracles.known_forms.flow import Flow

from mirage_py.search.extract.family import Family
from mirage_py.ugraph.ir.ugraph import UGraph


@dataclass(frozen=True, slots=True)
class KnownForm:
    """``holds`` looks at the structure alone: no name of a program, a tensor or a dimension."""

    name: str
    holds: Callable[[Flow], bool]

    @property
    def sentence(self) -> str:
        """What the form is."""
        return " ".join((self.holds.__doc__ or "").split())


KNOWN_FORMS = (
    KnownForm("matmul before division, both sums in one loop", normalisation.both_sums_in_one_loop),
    KnownForm("sum loop, then matmul loop", normalisation.sum_loop_then_product_loop),
    KnownForm("normalise, then matmul", normalisation.normalised_then_multiplied),
    KnownForm("normalising kernel, then matmul", normalisation.normalised_by_an_earlier_kernel),
    KnownForm("normalisation folded behind the product", normalisation.folded_behind_the_product),
    KnownForm("one-kernel nTrans", normalisation.one_kernel_ntrans),
    KnownForm("both products in one loop", products.both_products_in_one_loop),
    KnownForm("one-kernel LoRA", products.one_kernel_lora),
    KnownForm("concatenated LoRA", products.concatenated_lora),
    KnownForm("merged low-rank weights", products.merged_weights),
    KnownForm("fused activation", products.activation_in_the_products_kernel),
    KnownForm("gated product, then projection", products.gated_product_then_projection),
    KnownForm("fused attention", attention.fused_attention),
    KnownForm("QK-norm folded into attention", attention.qk_norm_folded_in),
    KnownForm("split-KV attention with combining kernel", attention.split_attention),
    KnownForm("split-KV attention in a cluster", attention.clustered_attention),
    KnownForm("attention, then projection", attention.attention_then_projection),
    KnownForm("streamed log-sum-exp", attention.streamed_log_sum_exp),
    KnownForm("split log-sum-exp with combining kernel", attention.split_log_sum_exp),
    KnownForm("split-K with combining kernel", splits.split_product_with_combining_kernel),
    KnownForm("split-K in a cluster", splits.split_product_in_a_cluster),
    KnownForm("split-K with atomic sum", splits.split_product_with_atomic_sum),
    KnownForm("library matmul, fused epilogue", splits.library_product_then_epilogue),
    KnownForm("fused prologue, library matmul", splits.prologue_then_library_product),
    KnownForm("output stored by the first block", splits.stored_by_the_first_block),
)


def forms_of(family: Family) -> tuple[str, ...]:
    """The names of all known forms that a family has, in the order of the registry."""
    return forms_of_ugraph(family.ugraph)


def forms_of_ugraph(ugraph: UGraph) -> tuple[str, ...]:
    """The same for a µGraph: a family before or after it is stabilised, or an instance."""
    flow = Flow(ugraph)
    return tuple(form.name for form in KNOWN_FORMS if form.holds(flow))
