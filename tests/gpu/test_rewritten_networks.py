"""Rewritten networks in CUDA graphs: replays give what the module gives, for new inputs too."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

import mirage_py  # noqa: E402
from mirage_py.dynamo import backend  # noqa: E402
from mirage_py.dynamo.networks.branched_graph import captured_branches, places_of  # noqa: E402
from mirage_py.dynamo.networks.optimized_module import OptimizedModule  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::FutureWarning")]
nn = torch.nn


class Network(nn.Module):
    """Siblings, narrow groups and a batch norm: each is rewritten."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.groups = nn.Conv2d(64, 64, 3, padding=1, groups=16, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.one, self.two, self.three = (nn.Conv2d(64, 32, k, padding=k // 2) for k in (1, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.groups(x)))
        return torch.cat([self.one(x), self.two(x), self.three(x)], 1)


def _image(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    image = torch.randn(4, 64, 28, 28, device="cuda", dtype=torch.bfloat16)
    return image.to(memory_format=torch.channels_last)


@pytest.fixture(scope="module")
def rewritten() -> tuple[nn.Module, OptimizedModule]:
    model = Network().eval().cuda().bfloat16().to(memory_format=torch.channels_last)
    program = torch.export.export(model, (_image(0),))
    found = mirage_py.optimize_graph(program, freeze=True, budget=60)
    assert found.rewriting.is_changed
    # Whoever wins the race, it is the rewritten module that is captured here.
    functional = program.run_decompositions({})
    return model, OptimizedModule(functional, found.rewriting.module)


def _assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    assert float((got.double() - want.double()).abs().max() / want.abs().max()) < 0.03


def test_a_captured_module_replays(rewritten: tuple[nn.Module, nn.Module]) -> None:
    model, module = rewritten
    given = _image(1)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            module(given)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(given)
        for seed in (2, 3):
            given.copy_(_image(seed))
            graph.replay()
            _assert_close(result, model(given))


# torch's trees begin with a graph of nothing, and expect the warning. Were the module's own graph
# empty, the results would not follow the images.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_compiled_in_cuda_graphs(rewritten: tuple[nn.Module, nn.Module]) -> None:
    model, module = rewritten
    compiled = torch.compile(module, mode="reduce-overhead")
    with torch.no_grad():
        for seed in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            image = _image(seed)
            _assert_close(compiled(image), model(image))


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_the_backend_captures_what_it_rewrites() -> None:
    model = Network().eval().cuda().bfloat16().to(memory_format=torch.channels_last)
    options = {"graph": "full", "cuda_graphs": True, "budget": 10.0}
    # The function, as its name is known only where the package is installed.
    compiled = torch.compile(model, backend=backend.mirage_py, options=options)
    with torch.no_grad():
        for seed in range(5):
            image = _image(seed)
            _assert_close(compiled(image).clone(), model(image))


def test_kernels_of_convolutions_pass_their_check() -> None:
    from mirage_py.dynamo.networks.convolution_times import Check
    from mirage_py.search.networks.convolutions.tiles import ranked_tiles
    from mirage_py.targets import target
    from mirage_py.ugraph.ir.convolution import FusedConvolution

    for spec in (
        FusedConvolution(1, 44, 28, 28, 44, (5, 5), padding=(2, 2), relu_before=True, has_bias=True,
                         has_residual=True, pitch=132, offset=44),
        FusedConvolution(2, 128, 14, 14, 128, (3, 3), (2, 2), (1, 1), groups=32, has_bias=True,
                         relu_after=True),
        FusedConvolution(1, 1024, 7, 7, 256, (1, 1), has_bias=True, relu_after=True),
        FusedConvolution(8, 512, 32, 32, 512, (3, 3), padding=(1, 1), has_bias=True,
                         relu_after=True),
        FusedConvolution(4, 44, 56, 56, 44, (5, 5), padding=(2, 2), groups=44, relu_before=True,
                         has_bias=True, has_residual=True, pitch=132, offset=44,
                         is_separable=True),
        FusedConvolution(2, 88, 28, 28, 176, (3, 3), (2, 2), (1, 1), groups=88, dtype="f16",
                         has_bias=True, relu_after=True, is_separable=True),
    ):  # fmt: skip
        check = Check(spec, 0)
        for tiles in ranked_tiles(spec, target("h200"), 4):
            assert not check.fault(tiles)


def test_kernels_over_windows_pass_their_check() -> None:
    from mirage_py.dynamo.networks.convolution_times import Check
    from mirage_py.search.networks.convolutions.window_tiles import window_tiles
    from mirage_py.targets import target
    from mirage_py.ugraph.ir.convolution import FusedConvolution

    around = FusedConvolution(4, 44, 56, 56, 44, (5, 5), padding=(2, 2), groups=44,
                              relu_before=True, has_bias=True, has_residual=True, pitch=132,
                              offset=44)  # fmt: skip
    odd = FusedConvolution(3, 45, 29, 27, 45, (3, 3), (2, 2), (1, 1), groups=45, relu_after=True)
    frames = FusedConvolution.of(
        (2, 8, 6, 9, 10), (8, 1, 3, 3, 3), ((1, 1, 2), (1,) * 3, (1,) * 3), 8, "f16"
    )
    for spec in (
        around, odd, frames, replace(odd, pool="max"), replace(around, pool="mean"),
        replace(frames, pool="mean"), replace(around, kernel=(3, 3), padding=(1, 1)),
    ):  # fmt: skip
        for given in (spec, replace(spec, is_planar=True)):
            check, found = Check(given, 0), window_tiles(given, target("h200"), 24)
            for tiles in dict.fromkeys((*found[:3], found[-1])):
                assert not check.fault(tiles), (given, tiles)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_pools_and_depthwise_convolutions_in_cuda_graphs() -> None:
    from mirage_py.dynamo.networks.convolution_kernels import matches, with_kernels
    from mirage_py.dynamo.networks.optimized_module import held_tensors
    from mirage_py.frontend.networks.aten_emit import emitted_network
    from mirage_py.frontend.networks.aten_import import imported_network
    from mirage_py.search.networks.convolutions.window_tiles import window_tiles
    from mirage_py.targets import target

    deep = nn.Conv2d(64, 64, 5, padding=2, groups=64)
    model = nn.Sequential(deep, nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1))
    model = model.eval().cuda().bfloat16().to(memory_format=torch.channels_last)
    program = torch.export.export(model, (_image(0),)).run_decompositions({})
    constants = {n: t.detach() for n, t in held_tensors(program).items()}
    network = imported_network(program.graph_module, constants)
    emitted = emitted_network(network, network.graph, program.graph_module, constants)
    places = matches(emitted, constants)
    tiles = {m.spec: window_tiles(m.spec, target("h200"), 1)[0] for m in places}
    assert with_kernels(emitted, places, tiles) == len(places) == 3
    module = OptimizedModule(program, emitted)
    compiled = torch.compile(module, mode="reduce-overhead")
    branches = captured_branches(module, [_image(1)])
    with torch.no_grad():
        for seed in (1, 2, 3, 1):
            image = _image(seed)
            _assert_close(compiled(image), model(image))
            _assert_close(branches(image), model(image))


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_kernels_of_convolutions_in_cuda_graphs() -> None:
    from mirage_py.dynamo.networks.convolution_kernels import matches, with_kernels
    from mirage_py.dynamo.networks.optimized_module import held_tensors
    from mirage_py.dynamo.networks.rewriting import rewritten
    from mirage_py.search.networks.convolutions.tiles import ranked_tiles
    from mirage_py.targets import target

    h200 = target("h200")
    model = Network().eval().cuda().bfloat16().to(memory_format=torch.channels_last)
    program = torch.export.export(model, (_image(0),)).run_decompositions({})
    constants = {n: t.detach() for n, t in held_tensors(program).items()}
    found = rewritten(program.graph_module, h200, effort="auto", constants=constants)
    assert found.is_changed
    places = matches(found.module, constants)
    tiles = {m.spec: replace(ranked_tiles(m.spec, h200, 1)[0], is_early=True) for m in places}
    assert with_kernels(found.module, places, tiles) == len(places) > 0
    compiled = torch.compile(OptimizedModule(program, found.module), mode="reduce-overhead")
    with torch.no_grad():
        for seed in (1, 2, 3, 1):
            image = _image(seed)
            _assert_close(compiled(image), model(image))


def test_branches_side_by_side(rewritten: tuple[nn.Module, OptimizedModule]) -> None:
    model, module = rewritten
    assert len({place.stream for place in places_of(module.graph_module.graph).values()}) > 1
    call = captured_branches(module, [_image(1)])
    with torch.no_grad():
        for seed in range(2, 30):
            _assert_close(call(_image(seed)), model(_image(seed)))
