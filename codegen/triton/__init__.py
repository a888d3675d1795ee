"""Triton back end: one readable file per kernel."""
