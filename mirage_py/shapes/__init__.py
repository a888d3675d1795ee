"""Sizes that change from call to call: policies, validity predicates, dispatch tables."""
