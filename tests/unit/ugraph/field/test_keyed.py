from __future__ import annotations

import numpy as np

from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps
from mirage_py.ugraph.field.keyed import MagnitudeOrder, derive_key, keyed_words, scramble


def test_keys_differ_by_seed_and_name() -> None:
    keys = [derive_key(seed, name) for seed in range(20) for name in ("", "a", "b", "1:a")]
    assert len(dict.fromkeys(keys)) == 80
    assert all(0 <= key < 2**64 for key in keys)
    assert derive_key(1, "exp") == 1653565229235055238  # the same on every machine


def test_scramble_is_splitmix64() -> None:
    # The first outputs of the published generator for the seed 1234567.
    state = np.array([(1234567 + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(3)], np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert scramble(state).tolist() == expected


def test_words_depend_on_every_argument_and_the_key() -> None:
    x, y = np.arange(1000, 2000), np.arange(5000, 6000)
    words = [
        keyed_words([x], 1),
        keyed_words([x], 2),
        keyed_words([x, y], 1),
        keyed_words([y, x], 1),
        keyed_words([x, x], 1),
        keyed_words([np.zeros_like(x), x], 1),
    ]
    everything = np.concatenate(words)
    assert len(np.unique(everything)) == everything.size
    assert keyed_words([x[:, None], y[:5]], 1).shape == (1000, 5)
    assert keyed_words([x[:1].reshape(())], 1).tolist() == words[0][:1].tolist()


def test_words_look_random() -> None:
    bits = np.unpackbits(keyed_words([np.arange(1 << 15)], 3).view(np.uint8)).reshape(-1, 64)
    assert abs(bits.mean(0) - 0.5).max() < 0.02
    correlation = np.corrcoef(bits.T)
    assert abs(correlation - np.eye(64)).max() < 0.04


def test_order_is_a_bijection() -> None:
    # Odd steps walk through all residues modulo 2^30; runs of neighbours are the hard case.
    order = MagnitudeOrder(derive_key(5, "order"))
    # Of so many random ranks a hundred pairs would be equal.
    magnitudes = np.concatenate([np.arange(1 << 18), np.arange(2**30 - (1 << 18), 2**30)])
    ranks = order(magnitudes)
    assert ranks.min() >= 0
    assert ranks.max() < 2**30
    assert len(np.unique(ranks)) == magnitudes.size


def test_order_looks_random_and_differs_by_key() -> None:
    magnitudes = np.arange(1, 10_001)
    ups = []
    for seed in range(8):
        ranks = MagnitudeOrder(derive_key(seed, "order"))(magnitudes)
        ups.append(ranks[1:] > ranks[:-1])
    agreement = np.corrcoef(np.array(ups, dtype=float))
    assert abs(np.mean(ups, axis=1) - 0.5).max() < 0.03
    assert abs(agreement - np.eye(8)).max() < 0.06


def test_many_elements_are_what_few_are() -> None:
    # 3 * 16,384 elements are made in blocks, the broadcast of a row and a column too.
    ops = FieldOps(FIELDS[0], 5)
    row, column = (FieldArray(np.arange(2**40, 2**40 + n), None) for n in (16384, 3))
    column = column.reshape((3, 1))
    many = ops.keyed("f", row, column)
    for number in range(3):
        few = ops.keyed("f", row, column[number])
        assert few.fingerprint() == many[number].fingerprint()
    assert many.q is not None
    assert many.q.max() < FIELDS[0].q
