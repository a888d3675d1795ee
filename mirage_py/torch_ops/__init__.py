"""Kernels as operators of torch: ``torch.ops.NAMESPACE.NAME``."""
