"""Kiln, PyTorch and JAX on the same workloads in one run, one after the other, as a table.

    python3 bench/peers/side_by_side.py [--kiln build/release/bin/kiln] [--filter RE] [--threads N]

--python names the interpreter that has torch and jax; a package that is missing leaves its column empty.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT_FILTER = "_16M$|softmax|layernorm|black_scholes|sum_sq|linear_gelu|small_"


def kiln_rows(options):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [options.kiln, "bench", "--no-first", "--filter", options.filter, "--threads", str(options.threads)]
        subprocess.run(command + ["--json", file.name], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(file.name))


def peer_rows(options, script):
    command = [options.python, str(HERE / script), "--filter", options.filter, "--threads", str(options.threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{script}: failed: skipped", file=sys.stderr)
        return []
    return json.loads(done.stdout)


def number(value):
    return "-" if value is None else f"{value:.5f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", default=str(HERE.parents[1] / "build/release/bin/kiln"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--filter", default=DEFAULT_FILTER)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="write all rows to a file")
    options = parser.parse_args()

    kiln = kiln_rows(options)
    rows = [dict(row, mode="kiln " + row["mode"]) for row in kiln["rows"]]
    rows += peer_rows(options, "torch_bench.py") + peer_rows(options, "jax_bench.py")
    table, floors = {}, {}
    for row in rows:
        table.setdefault(row["workload"], {})[row["mode"]] = row["median_ms"]
        if row["mode"] == "kiln fused":
            floors[row["workload"]] = row["floor_ms"]

    machine = kiln["machine"]
    print(f"{machine['cpu']} ({machine['llvm_name']}), {options.threads} threads; copy {machine['copy_gbps']:.1f} GB/s, "
          f"read {machine['read_gbps']:.1f} GB/s, multiply-add {machine['fma_gflops']:.0f} GFLOP/s; median milliseconds")
    modes = ["kiln fused", "kiln eager", "torch eager", "torch.compile", "jax.jit"]
    print(f"{'workload':31}{'floor':>10}" + "".join(f"{mode:>15}" for mode in modes) + f"{'best peer / kiln':>18}")
    for workload, times in table.items():
        peers = [times[mode] for mode in modes[2:] if mode in times]
        ratio = f"{min(peers) / times['kiln fused']:.2f}x" if peers else "-"
        print(f"{workload:31}{number(floors.get(workload)):>10}" +
              "".join(f"{number(times.get(mode)):>15}" for mode in modes) + f"{ratio:>18}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
