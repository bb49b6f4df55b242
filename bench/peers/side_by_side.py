"""Kiln, PyTorch and JAX on the same workloads in one run, one after the other, as a table.

    python3 bench/peers/side_by_side.py [--device cuda] [--quick] [--kiln build/release/bin/kiln] [--filter RE] [--threads N]

--python names the interpreter that has torch and jax; a package that is missing leaves its column empty. --quick measures
torch.compile's default mode and jax.jit alone. --limit: seconds after which a peer begins nothing more.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT_FILTER = {"cpu": "_16M$|softmax|layernorm|black_scholes|sum_sq|linear_gelu|mandelbrot|cumsum|sum_columns|transpose|small_", "cuda": "."}
MODES = ["kiln fused", "kiln eager", "torch eager", "torch.compile", "reduce-overhead", "max-autotune", "jax.jit"]


def kiln_rows(options):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = shlex.split(options.kiln) + ["bench", "--no-first", "--device", options.device, "--filter", options.filter]
        command += ["--threads", str(options.threads), "--json", file.name]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        try:
            return json.load(open(file.name))
        except ValueError:
            sys.exit(f"side_by_side.py: {shlex.join(command)} gave no rows (exit code {done.returncode})")


def peer_rows(options, script):
    command = [options.python, str(HERE / script), "--filter", options.filter, "--threads", str(options.threads)]
    command += ["--device", options.device, "--limit", str(options.limit)] + (["--quick"] if options.quick else [])
    peer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        text, _ = peer.communicate(timeout=options.limit + 60)  # the last one begun may take its time, but not for ever
    except subprocess.TimeoutExpired:
        print(f"{script}: stopped after {options.limit + 60:.0f} s", file=sys.stderr)
        peer.kill()
        text, _ = peer.communicate()
    if peer.returncode != 0:
        print(f"{script}: exit code {peer.returncode}", file=sys.stderr)
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            print(f"{script}: {line}", file=sys.stderr)
    return [row for row in rows if isinstance(row, dict)]


def number(value):
    return "-" if value is None else f"{value:.5f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def ratio(above, below):
    return f"{above / below:.2f}x" if above and below else "-"


def machine_line(machine, threads):
    if "gpu" in machine:
        return (f"{machine['gpu']} ({machine['arch']}), driver {machine['driver']}, {machine['compiler']}; copy "
                f"{machine['copy_gbps']:.0f} GB/s, bfloat16 product {machine['product_tflops']:.0f} TFLOP/s, empty launch "
                f"{machine['launch_us']:.2f} µs")
    return (f"{machine['cpu']} ({machine['llvm_name']}), {threads} threads; copy {machine['copy_gbps']:.1f} GB/s, read "
            f"{machine['read_gbps']:.1f} GB/s, multiply-add {machine['fma_gflops']:.0f} GFLOP/s")


def print_table(rows):
    table, floors = {}, {}
    for row in rows:
        table.setdefault(row["workload"], {})[row["mode"]] = row["median_ms"]
        if row["mode"] == "kiln fused":
            floors[row["workload"]] = row["floor_ms"]
    modes = [mode for mode in MODES if any(mode in times for times in table.values())]
    print(f"{'workload':34}{'floor':>10}" + "".join(f"{mode:>16}" for mode in modes) +
          f"{'kiln / floor':>14}{'best peer / kiln':>18}")
    for workload, times in table.items():
        kiln, floor = times.get("kiln fused"), floors.get(workload)
        peers = [time for mode, time in times.items() if not mode.startswith("kiln")]
        print(f"{workload:34}{number(floor):>10}" + "".join(f"{number(times.get(mode)):>16}" for mode in modes) +
              f"{ratio(kiln, floor):>14}{ratio(min(peers, default=None), kiln):>18}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", default=str(HERE.parents[1] / "build/release/bin/kiln"), help="how to run it, options too")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--filter", help="regular expression over the names")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--limit", type=float, help="default: 60 s with --quick on a GPU, 120 s without, none on the CPU")
    parser.add_argument("--json", help="write all rows to a file")
    options = parser.parse_args()
    options.filter = options.filter or DEFAULT_FILTER[options.device]
    if options.limit is None:
        options.limit = 1e6 if options.device == "cpu" else 60 if options.quick else 120

    kiln = kiln_rows(options)
    rows = [dict(row, mode="kiln " + row["mode"]) for row in kiln["rows"]]
    rows += peer_rows(options, "torch_bench.py") + peer_rows(options, "jax_bench.py")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"machine": kiln["machine"], "rows": rows}, indent=1))
    print(machine_line(kiln["machine"], options.threads) + "; median milliseconds")
    print_table(rows)


if __name__ == "__main__":
    main()
