"""A libcuda that has no GPU: it says what it was asked, and adds on the host where it is launched.

Built with the machine's C compiler. ``FakeDriver.calls`` are the calls since it was made.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char said[1 << 16];
static __thread int entered;
static int status_of_next, count = 2, has_map;

#define SAY(...) snprintf(said + strlen(said), sizeof said - strlen(said), __VA_ARGS__)

const char* fake_said(void) { return said; }
void fake_reset(int pointers, int maps) { said[0] = 0; count = pointers; has_map = maps; }
void fake_fail_next(int status) { status_of_next = status; }
static int done(void) { int s = status_of_next; status_of_next = 0; return s; }

int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int* d, int n) { *d = n + 100; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) { *c = (void*)(uintptr_t)(d + 1000); return 0; }
int cuCtxSetCurrent(void* c) { SAY("enter %d\n", (int)(uintptr_t)c); entered = 1; return 0; }
int cuModuleLoadData(void** m, const void* p) {
    SAY("load %.4s\n", (const char*)p);
    *m = (void*)7;
    return done();
}
int cuModuleGetFunction(void** f, void* m, const char* name) {
    SAY("function %s of %d\n", name, (int)(uintptr_t)m);
    *f = (void*)77;
    return 0;
}
int cuFuncSetAttribute(void* f, int a, int v) { SAY("set %d %d\n", a, v); return done(); }
int cuFuncGetAttribute(int* v, int a, void* f) { *v = 10 * a; return 0; }
int cuTensorMapEncodeTiled(void* map, int kind, unsigned rank, void* data, const uint64_t* shape,
    const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
    int swizzle, int promotion, int fill) {
    if (!entered) return 201;
    if ((uintptr_t)map % 64) return 1;
    SAY("map kind %d rank %u shape %d,%d stride %d box %u,%u steps %u,%u swizzle %d\n", kind, rank,
        (int)shape[0], (int)shape[1], (int)strides[0], box[0], box[1], steps[0], steps[1], swizzle);
    memset(map, 0, 128);
    memcpy(map, &data, sizeof data);
    return done();
}
static int launched(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned smem, void* stream, void** parameters, void** extra) {
    int s = done();
    if (s) return s;
    SAY("launch %d grid %u,%u,%u block %u,%u,%u smem %u stream %d\n", (int)(uintptr_t)f, gx, gy, gz,
        bx, by, bz, smem, (int)(uintptr_t)stream);
    float *x, *y;
    if (has_map) {
        y = *(float**)parameters[0];
        memcpy(&x, parameters[1], sizeof x);
    } else {
        x = *(float**)parameters[0];
        y = *(float**)parameters[1];
    }
    for (unsigned i = 0; i < gx * bx; ++i) y[i] = x[i] + x[i];
    return 0;
}
struct attribute { int id, pad, value; char rest[60]; };
struct configuration {
    unsigned g[3], b[3], smem;
    void* stream;
    struct attribute* attributes;
    unsigned count;
};
int cuLaunchKernelEx(struct configuration* c, void* f, void** parameters, void** extra) {
    if (!entered) return 201;
    if (c->count)
        SAY("attribute %d is %d of %u\n", c->attributes->id, c->attributes->value, c->count);
    return launched(f, c->g[0], c->g[1], c->g[2], c->b[0], c->b[1], c->b[2], c->smem,
        c->stream, parameters, extra);
}
int cuGetErrorName(int s, const char** text) { *text = "CUDA_ERROR_FAKE"; return 0; }
int cuGetErrorString(int s, const char** text) { *text = "as the test wants it"; return 0; }
"""


class FakeLibrary:
    """The loaded library; ``lines`` are the calls since ``reset``."""

    def __init__(self, path: Path) -> None:
        self.handle = ctypes.CDLL(str(path))
        self.handle.fake_said.restype = ctypes.c_char_p

    @property
    def lines(self) -> list[str]:
        return self.handle.fake_said().decode().splitlines()

    def reset(self, *, with_map: bool = False) -> None:
        self.handle.fake_reset(1 if with_map else 2, int(with_map))

    def fail_next(self, status: int) -> None:
        self.handle.fake_fail_next(status)


def built(folder: Path) -> FakeLibrary:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = folder / "fake.c"
    source.write_text(SOURCE)
    path = folder / "libfake.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, source], check=True)
    return FakeLibrary(path)
