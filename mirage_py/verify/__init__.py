"""Verification: tests over finite fields and over floats that a µGraph computes its program."""

from __future__ import annotations
