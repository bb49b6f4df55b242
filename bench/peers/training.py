"""A training step by Kiln, PyTorch and JAX in turns: medians of five alternating rounds, as a table.

    python3 bench/peers/training.py mlp conv [--device cuda] [--threads N] [--rounds 5] [--seconds 1]
                                    [--kiln build/release/bin/kiln_training] [--python INTERPRETER]

Workloads: mlp, conv, transformer-small (for a CPU), transformer (6 layers, 384 wide, context 256, batch 32,
bfloat16: for a GPU). Every framework is a process that has compiled its step before the first round; one of them runs
at a time. Kiln comes twice: with a step that is recorded once, and with one that is recorded anew each time.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


class Peer:
    def __init__(self, title, command, environment):
        self.title, self.times, self.last = title, [], None
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})

    def round(self):
        try:
            self.process.stdin.write("round\n")
            self.process.stdin.flush()
            self.last = json.loads(self.process.stdout.readline())
            self.times.append(self.last["us"])
        except (BrokenPipeError, ValueError):
            return

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:  # it has ended: a package is missing, say
            pass
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--kiln", default="build/release/bin/kiln_training")
    parser.add_argument("--python", default="python3")
    options = parser.parse_args()
    torch_modes = ["eager", "compile"] + (["reduce-overhead"] if options.device == "cuda" else [])
    for workload in options.workloads:
        common = [workload, str(options.seconds), options.device, str(options.threads)]
        kiln = {"KILN_NUM_THREADS": str(options.threads), "KILN_DEVICE": options.device}
        peers = [Peer(title, shlex.split(options.kiln) + [workload + suffix, common[1]], kiln)
                 for title, suffix in (("kiln", ""), ("kiln, recorded anew", "-recorded"))]
        for mode in torch_modes:
            peers.append(Peer("torch " + mode, [options.python, str(HERE / "training_torch.py"), *common, mode], {}))
        peers.append(Peer("jax.jit", [options.python, str(HERE / "training_jax.py"), *common], {}))
        for peer in peers:  # waits until each has compiled
            peer.round()
            peer.times.clear()
        for _ in range(options.rounds):
            for peer in peers:
                peer.round()
        print(f"{workload}, {options.device}, {options.threads} threads")
        ours = statistics.median(peers[0].times) if peers[0].times else float("nan")
        for peer in peers:
            peer.close()
            if not peer.times:
                print(f"  {peer.title:22} -")
                continue
            median = statistics.median(peer.times)
            rest = ", ".join(f"{key} {value}" for key, value in peer.last.items() if key != "us")
            print(f"  {peer.title:22} {median:10.1f} us  [{min(peer.times):.1f} .. {max(peer.times):.1f}]"
                  f"  {median / ours:6.2f} x  {rest}", flush=True)


if __name__ == "__main__":
    main()
