"""``torch.compile(model, backend="mirage_py")``: see docs/torch_compile.md."""
