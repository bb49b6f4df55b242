#!/usr/bin/env python3
"""Products of float32 matrices by Kiln and by NumPy, by turns: least microseconds of each.

  products.py 1:256 300 400 640:2048:64      # squares
  products.py 64x128x32 1x512x512            # M x N x K
  products.py 1:256 --kiln OLD NEW           # several kiln_products programs
  products.py 8:256 --worst 20               # the twenty that are furthest behind NumPy

Turns are 0.13 s apart because OpenBLAS's threads spin for 0.1 s.
"""
import argparse
import os
import subprocess
import sys
import time

GAP_S, BATCH = 0.13, 24


def worker(us):
    import numpy
    random = numpy.random.default_rng(0)
    operands = {}

    def microseconds(a, b):
        clock = time.perf_counter
        for _ in range(2):
            begin = clock()
            numpy.matmul(a, b)
            once = clock() - begin
        batch = range(max(1, int(1e-4 / once)))
        least, begin, n = 1e9, clock(), 0
        while n < 3 or (clock() - begin) * 1e6 < us:
            at = clock()
            for _ in batch:
                numpy.matmul(a, b)
            least, n = min(least, (clock() - at) / len(batch)), n + 1
        return least * 1e6

    for line in sys.stdin:
        words = list(map(int, line.split()))
        out = []
        for m, n, k in zip(words[::3], words[1::3], words[2::3]):
            if (m, n, k) not in operands:
                operands[m, n, k] = [random.normal(size=s).astype(numpy.float32) for s in ((m, k), (k, n))]
            out.append(microseconds(*operands[m, n, k]))
        print(*out, flush=True)


def sizes(words):
    for word in words:
        if "x" in word:
            yield tuple(map(int, word.split("x")))
        else:
            parts = list(map(int, word.split(":")))
            for n in range(parts[0], parts[-1] + 1) if len(parts) < 3 else range(*parts):
                yield n, n, n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*")
    parser.add_argument("--kiln", nargs="+", default=["build/release/bin/kiln_products"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--us", type=int, default=3000, help="of each product in a turn")
    parser.add_argument("--worst", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        return worker(a.us)
    env = dict(os.environ)
    if a.threads:
        env |= {"KILN_NUM_THREADS": str(a.threads), "OPENBLAS_NUM_THREADS": str(a.threads)}
    commands = {p: [p, str(a.us)] for p in a.kiln}
    commands["NumPy"] = [sys.executable, __file__, "--worker", "--us", str(a.us)]
    programs = {name: subprocess.Popen(c, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
                for name, c in commands.items()}
    rows = []
    every = list(sizes(a.sizes))
    for i in range(0, len(every), BATCH):
        batch = every[i:i + BATCH]
        least = {name: [1e9] * len(batch) for name in programs}
        for _ in range(a.rounds):
            for name, program in programs.items():
                time.sleep(GAP_S)
                program.stdin.write(" ".join(f"{m} {n} {k}" for m, n, k in batch) + "\n")
                program.stdin.flush()
                took = map(float, program.stdout.readline().split())
                least[name] = list(map(min, least[name], took))
        rows += [(size, *(least[name][j] for name in programs)) for j, size in enumerate(batch)]
    if a.worst:
        rows = sorted(rows, key=lambda r: -r[-2] / r[-1])[:a.worst]
    print("product", *(f"kiln{i or ''}" for i in range(len(a.kiln))), "NumPy kiln/NumPy")
    for size, *us in rows:
        print("x".join(map(str, size)), *(f"{t:.2f}" for t in us), f"{us[-2] / us[-1]:.2f}")


if __name__ == "__main__":
    main()
