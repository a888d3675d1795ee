"""Programs of many kinds, at sizes that NumPy evaluates in moments, for faults in their results."""

from __future__ import annotations

from collections.abc import Mapping

# By class and name; ``{t}`` is the type of the inputs.
PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "matmul": {
        "matmul": "M = 32, K = 512, N = 64\nX[M, K], W[K, N] : {t}\n"
        "Y[m, n] = sum[k](X[m, k] * W[k, n])",
        "bias_gelu": "M = 32, K = 512, N = 64\nX[M, K], W[K, N], B[N] : {t}\n"
        "Y[m, n] = gelu(sum[k](X[m, k] * W[k, n]) + B[n])",
        "gated_mlp": "M = 16, K = 512, N = 64\nX[M, K], W[K, N], V[K, N] : {t}\n"
        "Y[m, n] = silu(sum[k](X[m, k] * W[k, n])) * sum[k](X[m, k] * V[k, n])",
        "mlp": "M = 16, K = 256, N = 128, O = 64\nX[M, K], W[K, N], V[N, O] : {t}\n"
        "let H[m, n] = max(sum[k](X[m, k] * W[k, n]), 0)\n"
        "Y[m, o] = sum[n](H[m, n] * V[n, o])",
        "lora": "M = 16, K = 256, R = 8, N = 64\nX[M, K], W[K, N], A[K, R], B[R, N] : {t}\n"
        "Y[m, n] = sum[k](X[m, k] * W[k, n]) + 0.5 * sum[r](sum[k](X[m, k] * A[k, r]) * B[r, n])",
        "residual": "M = 16, K = 512, N = 64\nX[M, K], W[K, N], R[M, N], B[N] : {t}\n"
        "Y[m, n] = R[m, n] + sum[k](X[m, k] * W[k, n]) + B[n]",
    },
    "norm": {
        "rms_norm": "M = 64, D = 512\nX[M, D], G[D] : {t}\n"
        "Y[m, d] = rms_norm[d](X[m, d], eps=1e-6) * G[d]",
        "rms_norm_matmul": "M = 16, D = 512, N = 64\nX[M, D], G[D], W[D, N] : {t}\n"
        "Y[m, n] = sum[d](X[m, d] * G[d] * W[d, n]) / sqrt(mean[d](X[m, d]^2) + 1e-6)",
        "layer_norm": "M = 64, D = 512\nX[M, D], G[D], B[D] : {t}\n"
        "Y[m, d] = layer_norm[d](X[m, d], eps=1e-5) * G[d] + B[d]",
        "add_layer_norm": "M = 64, D = 512\nX[M, D], R[M, D], G[D], B[D] : {t}\n"
        "let S[m, d] = X[m, d] + R[m, d]\n"
        "Y[m, d] = layer_norm[d](S[m, d], eps=1e-5) * G[d] + B[d]",
        "group_norm": "B = 4, G = 4, C = 8, N = 64\nX[B, 32, N], A[32], Z[32] : {t}\n"
        "index g < G, c < C\n"
        "let m[b, g] = mean[c, n](X[b, g * 8 + c, n])\n"
        "let v[b, g] = mean[c, n]((X[b, g * 8 + c, n] - m[b, g])^2)\n"
        "Y[b, g * 8 + c, n] = (X[b, g * 8 + c, n] - m[b, g]) / sqrt(v[b, g] + 1e-5)"
        " * A[g * 8 + c] + Z[g * 8 + c]",
        "batch_norm": "N = 8192, C = 8\nX[N, C], A[C], Z[C] : {t}\n"
        "let m[c] = mean[n](X[n, c])\nlet v[c] = mean[n]((X[n, c] - m[c])^2)\n"
        "Y[n, c] = (X[n, c] - m[c]) / sqrt(v[c] + 1e-5) * A[c] + Z[c]",
        "l2_norm": "M = 64, D = 512\nX[M, D] : {t}\nY[m, d] = l2_norm[d](X[m, d], eps=1e-12)",
        "variance": "M = 64, D = 2048\nX[M, D] : {t}\nlet m[r] = mean[d](X[r, d])\n"
        "Y[r] : f32 = mean[d]((X[r, d] - m[r])^2)",
        "instance_stats": "B = 16, D = 4096\nX[B, D] : {t}\n"
        "Y[b] : f32 = mean[d](X[b, d])\nZ[b] : f32 = mean[d](X[b, d]^2)",
    },
    "softmax": {
        "softmax": "M = 64, D = 1024\nX[M, D] : {t}\nY[m, d] = softmax[d](X[m, d])",
        "log_softmax": "M = 64, D = 1024\nX[M, D] : {t}\n"
        "Y[m, d] = X[m, d] - log(sum[k](exp(X[m, k])))\n",
        "logsumexp": "M = 64, D = 1024\nX[M, D] : {t}\nY[m] : f32 = log(sum[d](exp(X[m, d])))",
        "gumbel": "M = 64, D = 512\nX[M, D], T[M] : {t}\n"
        "Y[m, d] = softmax[d](X[m, d] * 0.7 + T[m])",
    },
    "attention": {
        "attention": "H = 2, T = 32, S = 256, D = 64\nQ[H, T, D], K[H, S, D], V[H, S, D] : {t}\n"
        "O[h, t, e] = sum[s](softmax[s](sum[d](Q[h, t, d] * K[h, s, d]) * 0.125) * V[h, s, e])",
        "causal": "H = 2, T = 96, S = 96, D = 64\nQ[H, T, D], K[H, S, D], V[H, S, D] : {t}\n"
        "O[h, t, e] = sum[s](softmax[s](where(s <= t, sum[d](Q[h, t, d] * K[h, s, d]) * 0.125,"
        " -inf)) * V[h, s, e])",
        "window": "H = 2, T = 128, S = 128, D = 64\nQ[H, T, D], K[H, S, D], V[H, S, D] : {t}\n"
        "O[h, t, e] = sum[s](softmax[s](where(t - 48 < s <= t, sum[d](Q[h, t, d] * K[h, s, d])"
        " * 0.125, -inf)) * V[h, s, e])",
        "softcap": "H = 2, T = 32, S = 256, D = 64\nQ[H, T, D], K[H, S, D], V[H, S, D] : {t}\n"
        "O[h, t, e] = sum[s](softmax[s](50 * tanh(sum[d](Q[h, t, d] * K[h, s, d]) / 400))"
        " * V[h, s, e])",
        "added_mask": "T = 32, S = 256, D = 64\nQ[T, D], K[S, D], V[S, D], M[T, S] : {t}\n"
        "O[t, e] = sum[s](softmax[s](sum[d](Q[t, d] * K[s, d]) * 0.125 + M[t, s]) * V[s, e])",
        "alibi": "H = 4, T = 32, S = 256, D = 64\nQ[H, T, D], K[H, S, D], V[H, S, D] : {t}\n"
        "O[h, t, e] = sum[s](softmax[s](sum[d](Q[h, t, d] * K[h, s, d]) * 0.125"
        " + (s - t) * 2^(-2 * (h + 1))) * V[h, s, e])",
        "decode": "H = 8, S = 2048, D = 64\nQ[H, D], K[2, S, D], V[2, S, D] : {t}\n"
        "O[h, e] = sum[s](softmax[s](sum[d](Q[h, d] * K[h // 4, s, d]) * 0.125)"
        " * V[h // 4, s, e])",
        "qk_norm": "T = 32, S = 128, D = 64\nQ[T, D], K[S, D], V[S, D], G[D] : {t}\n"
        "let q[t, d] = rms_norm[d](Q[t, d], eps=1e-6) * G[d]\n"
        "let k[s, d] = rms_norm[d](K[s, d], eps=1e-6) * G[d]\n"
        "O[t, e] = sum[s](softmax[s](sum[d](q[t, d] * k[s, d]) * 0.125) * V[s, e])",
        "linear": "T = 64, S = 64, D = 32\nQ[T, D], K[S, D], V[S, D] : {t}\n"
        "O[t, e] = sum[s](where(s <= t, sum[d](Q[t, d] * K[s, d]), 0) * V[s, e])",
    },
    "loss": {
        "cross_entropy": "T = 64, V = 1024\nX[T, V] : {t}\nL[T] : i32\n"
        "Y[0] : f32 = mean[t](log(sum[v](exp(X[t, v]))) - sum[v](where(v == L[t], X[t, v], 0)))",
        "mse": "M = 64, D = 512\nX[M, D], T[M, D] : {t}\n"
        "Y[0] : f32 = mean[m, d]((X[m, d] - T[m, d])^2)",
        "kl": "M = 64, D = 512\nX[M, D], Z[M, D] : {t}\n"
        "let p[m, d] = softmax[d](X[m, d])\n"
        "Y[0] : f32 = sum[m, d](p[m, d] * (log(p[m, d]) - Z[m, d])) / M",
        "huber": "M = 64, D = 512\nX[M, D], T[M, D] : {t}\n"
        "let e[m, d] = abs(X[m, d] - T[m, d])\n"
        "Y[0] : f32 = mean[m, d](where(e[m, d] < 1, 0.5 * e[m, d]^2, e[m, d] - 0.5))",
        "bce": "M = 64, D = 64\nX[M, D], T[M, D] : {t}\n"
        "Y[0] : f32 = mean[m, d](softplus(X[m, d]) - X[m, d] * T[m, d])",
        "head_loss": "T = 32, D = 256, V = 512\nX[T, D], W[D, V] : {t}\nL[T] : i32\n"
        "let z[t, v] = sum[d](X[t, d] * W[d, v])\n"
        "Y[t] : f32 = log(sum[v](exp(z[t, v]))) - sum[v](where(v == L[t], z[t, v], 0))",
        "cosine": "M = 64, D = 512\nX[M, D], Z[M, D] : {t}\n"
        "let a[m] = sqrt(sum[d](X[m, d]^2))\nlet b[m] = sqrt(sum[d](Z[m, d]^2))\n"
        "Y[m] : f32 = sum[d](X[m, d] * Z[m, d]) / (a[m] * b[m] + 1e-8)",
        "margin": "M = 64, D = 256\nA[M, D], P[M, D], N[M, D] : {t}\n"
        "Y[m] : f32 = max(sum[d]((A[m, d] - P[m, d])^2) - sum[d]((A[m, d] - N[m, d])^2) + 1, 0)",
    },
    "convolution": {
        "conv_relu": "B = 2, C = 16, O = 16, T = 66\nX[B, C, T], W[O, C, 3], Z[O] : {t}\n"
        "index t < 64\n"
        "Y[b, o, t] = max(sum[c, r](X[b, c, t + r] * W[o, c, r]) + Z[o], 0)",
        "conv_norm": "B = 8, C = 16, O = 16, T = 66\nX[B, C, T], W[O, C, 3] : {t}\n"
        "index t < 64\n"
        "let y[b, o, t] = sum[c, r](X[b, c, t + r] * W[o, c, r])\n"
        "let m[o] = mean[b, t](y[b, o, t])\nlet v[o] = mean[b, t]((y[b, o, t] - m[o])^2)\n"
        "Y[b, o, t] = (y[b, o, t] - m[o]) / sqrt(v[o] + 1e-5)",
        "pool": "B = 4, C = 16, T = 64\nX[B, C, 2 * T] : {t}\nindex t < T\n"
        "Y[b, c, t] = 0.5 * (X[b, c, 2 * t] + X[b, c, 2 * t + 1])",
        "depthwise": "B = 4, C = 16, T = 68\nX[B, C, T], W[C, 5] : {t}\nindex t < 64\n"
        "Y[b, c, t] = silu(sum[r](X[b, c, t + r] * W[c, r]))",
    },
    "quantised": {
        "dequantised": "M = 16, K = 256, N = 64\nX[M, K], S[N] : {t}\nW[K, N] : i8\n"
        "Y[m, n] = sum[k](X[m, k] * W[k, n]) * S[n]",
        "groups": "B = 16, N = 64, G = 4, J = 32\nX[B, G * J], S[N, G] : {t}, W[N, G * J] : u8\n"
        "index j < J\n"
        "Y[b, n] : {t} = sum[g, j](X[b, 32 * g + j] * (W[n, 32 * g + j] - 8) * S[n, g])",
        "absmax_i8": "M = 64, D = 256\nX[M, D] : {t}\nY[M, D] : i8\nS[M] : f32\n"
        "let a[m] = max(max[d](abs(X[m, d])), 1e-6)\n"
        "Y[m, d] = cast(clamp(round(X[m, d] * 127 / a[m]), -127, 127), i8)\n"
        "S[m] = a[m] / 127",
        "e4m3": "M = 64, D = 256\nX[M, D] : {t}\nY[M, D] : f8e4m3\nS[M] : f32\n"
        "let a[m] = max(max[d](abs(X[m, d])), 1e-6)\n"
        "Y[m, d] = clamp(X[m, d] * 448 / a[m], -448, 448)\nS[m] = a[m] / 448",
        "f8_matmul": "M = 16, K = 256, N = 64\nX[M, K], W[K, N] : f8e4m3\nA[M], B[N] : f32\n"
        "Y[m, n] : {t} = sum[k](X[m, k] * W[k, n]) * A[m] * B[n]",
    },
    "elementwise": {
        "gelu_tanh": "M = 64, D = 256\nX[M, D] : {t}\nY[m, d] = gelu_tanh(X[m, d])",
        "rotary": "T = 64, D = 64\nX[T, D], C[T, 32], Z[T, 32] : {t}\nindex i < 32\n"
        "Y[t, i] = X[t, i] * C[t, i] - X[t, i + 32] * Z[t, i]",
        "swiglu": "M = 64, D = 256\nX[M, D], Z[M, D] : {t}\nY[m, d] = silu(X[m, d]) * Z[m, d]",
        "adam": "M = 64, D = 256\nP[M, D], G[M, D], A[M, D], V[M, D] : {t}\n"
        "Y[m, d] = P[m, d] - 0.01 * (0.9 * A[m, d] + 0.1 * G[m, d])"
        " / (sqrt(0.999 * V[m, d]^2 + 0.001 * G[m, d]^2) + 1e-8)",
        "three_terms": "M = 64, D = 256\nX[M, D], B[D], R[M, D] : {t}\n"
        "Y[m, d] = tanh(X[m, d] + B[d] + R[m, d] - 0.5)",
    },
    "long sums": {
        "long_mean": "B = 2, D = 65536\nX[B, D] : {t}\nY[b] : f32 = mean[d](X[b, d])",
        "long_squares": "B = 2, D = 65536\nX[B, D] : {t}\nY[b] : f32 = sqrt(sum[d](X[b, d]^2))",
        "long_variance": "B = 2, D = 65536\nX[B, D] : {t}\nlet m[b] = mean[d](X[b, d])\n"
        "Y[b] : f32 = mean[d]((X[b, d] - m[b])^2)",
        "long_batch_norm": "N = 65536, C = 2\nX[N, C], A[C], Z[C] : {t}\n"
        "let m[c] = mean[n](X[n, c])\nlet v[c] = mean[n]((X[n, c] - m[c])^2)\n"
        "Y[n, c] = (X[n, c] - m[c]) / sqrt(v[c] + 1e-5) * A[c] + Z[c]",
        "long_logsumexp": "B = 2, D = 65536\nX[B, D] : {t}\nY[b] : f32 = log(sum[d](exp(X[b, d])))",
        "long_matmul": "M = 4, K = 65536, N = 4\nX[M, K], W[K, N] : {t}\n"
        "Y[m, n] = sum[k](X[m, k] * W[k, n])",
    },
}
