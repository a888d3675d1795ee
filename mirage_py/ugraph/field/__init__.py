"""Finite-field arithmetic on tensors: what each operator computes modulo two primes.

A tensor is a pair of residue arrays (modulo p and modulo q, with p = 2q + 1). Two programs that
compute the same thing over the reals have equal pairs; two that do not differ on random inputs with
overwhelming probability.

Source: Mirage (OSDI 2025), section on probabilistic equivalence verification.
"""

from __future__ import annotations

from mirage_py.ugraph.field.arithmetic import FieldOps
from mirage_py.ugraph.field.primes import FIELDS, Field
from mirage_py.ugraph.field.residues import DivisionByZero
from mirage_py.ugraph.field.values import FieldArray, concatenate

__all__ = ["FIELDS", "DivisionByZero", "Field", "FieldArray", "FieldOps", "concatenate"]
