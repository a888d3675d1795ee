"""The layers of four models at the widths of their published configurations, in bf16.

Decoding: one new token of each of 1 or 16 sequences, whose caches hold 8192 keys. Prompts: 1024
tokens of one sequence. A shape that two models share stands once.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.workloads.workload import Workload

DECODE = (1, 16)
PROMPT = 1024
KEYS = 8192


@dataclass(frozen=True, slots=True)
class Model:
    """Extents from a model's config.json; ``kv_heads`` key-value heads serve ``heads`` queries."""

    name: str
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    # Before the names of its specs, where its norms and gates are its own.
    dialect: str = ""

    def qkv(self, rows: int) -> Workload:
        """Input norm and the projection to queries, keys and values."""
        columns = (self.heads + 2 * self.kv_heads) * self.head_dim
        return self._rows("qkv", f"{self.dialect}norm_qkv", rows, D=self.hidden, N=columns)

    def mlp(self, rows: int) -> Workload:
        """Post-attention norm and the gated half of the MLP."""
        return self._rows("mlp", f"{self.dialect}norm_gated_mlp", rows, D=self.hidden, F=self.ffn)

    def out(self, rows: int) -> Workload:
        """The output projection of attention, and the residual."""
        return self._projection("out", rows, self.heads * self.head_dim)

    def down(self, rows: int) -> Workload:
        """The down projection of the MLP, and the residual."""
        return self._projection("down", rows, self.ffn)

    def token(self, batch: int, keys: int = KEYS, *, name: str = "token") -> Workload:
        """Attention of a new token of each sequence."""
        return Workload(f"{self.name}_{name}", "models/token_attention", batch, {
            "B": batch, "G": self.kv_heads, "R": self.heads // self.kv_heads, "S": keys,
            "D": self.head_dim,
        })  # fmt: skip

    def qknorm_token(self, batch: int) -> Workload:
        """The same with normalised queries."""
        plain = self.token(batch)
        return Workload(plain.name, "models/qknorm_token_attention", batch, plain.sizes)

    def prompt(self, tokens: int) -> Workload:
        """Causal attention of one prompt."""
        return self._rows(
            "prompt", "prompt_attention", tokens, rows_name="T",
            H=self.heads, G=self.kv_heads, D=self.head_dim,
        )  # fmt: skip

    def _projection(self, name: str, rows: int, inner: int) -> Workload:
        norm = "norm_" if self.dialect else ""
        example = f"{self.dialect}projection_{norm}residual"
        return self._rows(name, example, rows, D=inner, M=self.hidden)

    def _rows(
        self, name: str, example: str, rows: int, *, rows_name: str = "B", **sizes: int
    ) -> Workload:
        return Workload(
            f"{self.name}_{name}", f"models/{example}", rows, {rows_name: rows, **sizes}
        )


LLAMA_8B = Model("llama8b", 4096, 14336, 32, 8, 128)
LLAMA_70B = Model("llama70b", 8192, 28672, 64, 8, 128)
QWEN_8B = Model("qwen8b", 4096, 12288, 32, 8, 128)
GEMMA_12B = Model("gemma12b", 3840, 15360, 16, 8, 256, dialect="gemma_")
# Five of six layers of Gemma 3 see the last 1024 keys, and their caches hold no more.
GEMMA_WINDOW = 1024


def models() -> tuple[Workload, ...]:
    """Decoding of all layers, and prompts where a model says something of its own."""
    cells: list[Workload] = []
    for b in DECODE:
        for model in (LLAMA_8B, LLAMA_70B):
            cells += [model.qkv(b), model.mlp(b), model.out(b), model.down(b), model.token(b)]
        # Its projections of attention are those of Llama-3-8B.
        cells += [QWEN_8B.mlp(b), QWEN_8B.down(b), QWEN_8B.qknorm_token(b)]
        cells += [GEMMA_12B.qkv(b), GEMMA_12B.mlp(b), GEMMA_12B.out(b), GEMMA_12B.down(b)]
        cells += [GEMMA_12B.token(b), GEMMA_12B.token(b, GEMMA_WINDOW, name="window")]
    cells += [LLAMA_8B.qkv(PROMPT), LLAMA_8B.mlp(PROMPT), LLAMA_8B.down(PROMPT)]
    cells += [LLAMA_8B.prompt(PROMPT), GEMMA_12B.mlp(PROMPT), GEMMA_12B.prompt(PROMPT)]
    return tuple(cells)
