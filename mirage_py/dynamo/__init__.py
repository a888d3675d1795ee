"""``torch.compile(model, backend="mirage_py")``: see docs/how-to/torch_compile.md."""
