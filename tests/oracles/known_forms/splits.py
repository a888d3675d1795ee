"""Patterns of split reductions and of library matmuls."""

from __future__ import annotations

from oracles.known_forms.flow import Flow

from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim


def split_product_with_combining_kernel(flow: Flow) -> bool:
    """Each block leaves the product of its part, with no exponential in it; a later kernel adds
    the parts up.
    """
    return any(
        flow.values[product].kernel < flow.values[total].kernel
        and flow.feeds(product, total)
        and not flow.sources(product, "exp")
        for product in flow.all_of("matmul")
        for part in map(outer_dim, flow.values[product].reduced)
        if part in flow.parts and part in flow.values[product].dims
        for total in flow.all_of("sum")
        if part in flow.values[total].reduced
    )


def split_product_in_a_cluster(flow: Flow) -> bool:
    """Each block of a cluster has the product of its part, with no exponential in it, and the
    cluster adds the parts up.
    """
    return any(
        flow.values[product].kernel == flow.values[total].kernel
        and flow.feeds(product, total)
        and not flow.sources(product, "exp")
        for product in flow.all_of("matmul")
        for part in map(outer_dim, flow.values[product].reduced)
        if part in flow.in_cluster(flow.values[product].kernel)
        and part in flow.values[product].dims
        for total in flow.all_of("sum")
        if part in flow.values[total].reduced
    )


def split_product_with_atomic_sum(flow: Flow) -> bool:
    """Each block adds the product of its part to the result."""
    for block in flow.ugraph.kernels:
        if isinstance(block, BlockGraph):
            for _, store in block.stores():
                if store.op == "store_add" and block.summed_axes(store):
                    return any(flow.all_of("matmul"))
    return False


def library_product_then_epilogue(flow: Flow) -> bool:
    """A library multiplies, and a last kernel without products does what follows."""
    last = flow.kernels - 1
    products = list(flow.all_of("matmul"))
    return (
        isinstance(flow.ugraph.kernels[last], BlockGraph)
        and all(flow.values[p].is_library for p in products)
        and any(
            flow.values[a].is_library
            for n in flow.all_of("load")
            if flow.values[n].kernel == last
            for a in flow.values[n].args
        )
    )


def prologue_then_library_product(flow: Flow) -> bool:
    """A first kernel prepares an operand, and a library multiplies at the end."""
    last = len(flow.values) - 1
    return flow.values[last].is_library and any(
        not flow.values[maker].is_library
        for operand in flow.values[last].args
        for maker in flow.values[operand].args
    )


def stored_by_the_first_block(flow: Flow) -> bool:
    """Blocks along a grid axis have the same to store, and the first one does."""
    return any(
        block.predicated_axes(store)
        for block in flow.ugraph.kernels
        if isinstance(block, BlockGraph)
        for _, store in block.stores()
        if store.op == "store"
    )
