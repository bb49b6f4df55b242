#!/usr/bin/env python3
"""How much less memory traffic a plan could have, had it stored other values between its kernels.

    KILN_EXPLAIN=step.jsonl build/release/bin/kiln_training transformer 0.1 </dev/null
    python3 bench/least_traffic.py step.jsonl          # needs scipy

Takes the largest plan of a report. Its kernels stay, and what they must compute: reductions, gathers, results that the
program asked for, and all of library calls and attentions. Which elementwise values each kernel reads, computes again,
or stores for later ones is chosen anew for the whole plan at once, so that the bytes read and written are the least
there are: a mixed-integer program, solved exactly, in which computing costs nothing. This is what a min cut between
forward and backward pass would choose, for every pair of kernels. Prints both numbers of megabytes and the values that
are stored in one of the plans alone.
"""
import argparse
import collections
import json
import math
import sys

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

VIEWS = {"reshape", "permute", "broadcast", "slice"}
FREE = {"scalar", "iota"}
JOINS = {"join", "pad", "arrange", "window"}
NOT_ELEMENTWISE = VIEWS | FREE | JOINS | {"leaf", "matmul", "conv", "gather", "scatter", "scan", "sort"}
FLEXIBLE = {"Elementwise", "Norm", "MapsReduction", "Reduction", "Softmax"}
SIZE = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4,
        "int64": 8, "uint64": 8, "float64": 8}


class Plan:
    def __init__(self, report):
        self.nodes = {n["id"]: n for n in report["nodes"]}
        self.kernels = report["regions"]
        self.flexible = [k["kind"] in FLEXIBLE and not any(self.op(n) in VIEWS for n in k["outputs"])
                         for k in self.kernels]
        self.outputs = {n: i for i, k in enumerate(self.kernels) for n in k["outputs"]}
        self.asked_for = {s["node"] for s in report["stored"] if s["why"] == "Requested"}
        self.reads = [self.read_by(k) for k in self.kernels]

    def op(self, n):
        return self.nodes[n]["op"]

    def bytes(self, n):
        return math.prod(self.nodes[n]["shape"]) * SIZE[self.nodes[n]["dtype"]]

    def is_elementwise(self, n):
        return self.op(n) not in NOT_ELEMENTWISE and not self.op(n).startswith(("reduce_", "cum", "arg"))

    def behind_views(self, n):
        while self.op(n) in VIEWS:
            n = self.nodes[n]["operands"][0]
        return n

    def operands(self, n):
        found = (self.behind_views(o) for o in self.nodes[n]["operands"])
        return [o for o in found if self.op(o) not in FREE]

    def read_by(self, kernel):
        """What a kernel reads from memory."""
        own, seen, found = set(kernel["nodes"]), set(), set()
        stack = [o for n in own for o in self.nodes[n]["operands"]]
        while stack:
            n = stack.pop()
            if n in own or n in seen:
                continue
            seen.add(n)
            if n in self.outputs or self.op(n) == "leaf":
                found.add(n)
            else:
                stack += self.nodes[n]["operands"]
        return found

    def traffic(self, i):
        return sum(map(self.bytes, self.reads[i])) + sum(map(self.bytes, self.kernels[i]["outputs"]))

    def can_be_made(self, n):
        """By whoever needs it: elementwise, or joined halves of a rotation that are stored nowhere."""
        return self.is_elementwise(n) or (n not in self.outputs and self.op(n) in JOINS)

    def is_in_memory(self, n):
        return n in self.outputs or self.op(n) == "leaf"

    def must_be_stored(self, n):
        """By a kernel that is not asked about, or because nobody can make it again."""
        return n in self.outputs and (not self.flexible[self.outputs[n]] or not self.is_elementwise(n))


class Program:
    """Variables are 0 or 1: ("read" | "made" | "stored", kernel, node)."""

    def __init__(self):
        self.variables, self.costs, self.constraints = {}, [], []

    def add(self, key, cost):
        if key not in self.variables:
            self.variables[key] = len(self.costs)
            self.costs.append(cost)

    def sum_of(self, keys):
        return collections.Counter(self.variables[k] for k in keys if k in self.variables)

    def at_least(self, terms, least):
        self.constraints.append((dict(terms), least))

    def implies(self, key, terms):
        """Where the variable is 1, one of the terms is."""
        self.at_least({**terms, self.variables[key]: -1}, 0)

    def solve(self, seconds):
        matrix = lil_matrix((len(self.constraints), len(self.costs)))
        for row, (terms, _) in enumerate(self.constraints):
            for column, factor in terms.items():
                matrix[row, column] = factor
        costs = numpy.array(self.costs, float)
        least = numpy.array([c for _, c in self.constraints])
        result = milp(costs / costs.max(), constraints=LinearConstraint(matrix.tocsr(), least, numpy.inf),
                      integrality=numpy.ones(len(costs)), bounds=Bounds(0, 1),
                      options={"time_limit": seconds, "mip_rel_gap": 1e-4})
        if result.x is None:
            sys.exit(f"no plan found: {result.message}")
        if result.status != 0:
            print(f"stopped early, the least is below by at most {result.mip_gap:.2%}: {result.message}")
        return {key for key, i in self.variables.items() if result.x[i] > 0.5}


def values_near(plan, kernel, depth):
    """What a kernel may read or make, and in how many operations below it that is; and what it must compute."""
    roots = [n for n in kernel["nodes"] if not plan.is_elementwise(n) and plan.op(n) not in VIEWS | FREE]
    stack = [(o, 0) for n in roots for o in plan.operands(n)]
    stack += [(n, 0) for n in kernel["outputs"] if plan.is_elementwise(n)]
    near = {}
    while stack:
        n, far = stack.pop()
        if near.get(n, depth + 1) <= far:
            continue
        near[n] = far
        if plan.can_be_made(n) and far < depth:
            stack += [(o, far + 1) for o in plan.operands(n)]
    return near, roots


def formulate(plan, depth):
    program = Program()
    kernels = [(i, *values_near(plan, k, depth)) for i, k in enumerate(plan.kernels) if plan.flexible[i]]
    for i, near, roots in kernels:
        for n, far in near.items():
            if n in roots:
                continue
            if plan.is_elementwise(n) or plan.is_in_memory(n):
                program.add(("read", i, n), plan.bytes(n))
            if plan.can_be_made(n) and far < depth:
                program.add(("made", i, n), 0)
            if plan.is_elementwise(n) and far < depth:
                program.add(("stored", i, n), plan.bytes(n))
    storers = collections.defaultdict(list)
    for what, i, n in program.variables:
        if what == "stored":
            storers[n].append(i)
    for i, near, roots in kernels:
        def present(n, i=i):
            return program.sum_of([("read", i, n), ("made", i, n)])
        for o in {o for n in roots for o in plan.operands(n) if o not in roots}:
            program.at_least(present(o), 1)
        for n in near:
            if ("made", i, n) in program.variables:
                if ("stored", i, n) in program.variables:
                    program.implies(("stored", i, n), program.sum_of([("made", i, n)]))
                for o in plan.operands(n):
                    if o not in roots:
                        program.implies(("made", i, n), present(o))
            # What is read is what an earlier kernel stored.
            if plan.is_elementwise(n) and n not in roots and not plan.must_be_stored(n):
                program.implies(("read", i, n), program.sum_of([("stored", q, n) for q in storers[n] if q < i]))
    fixed = [plan.reads[i] for i in range(len(plan.kernels)) if not plan.flexible[i]]
    for n in plan.asked_for.union(*fixed):
        if plan.is_elementwise(n) and not plan.must_be_stored(n) and storers[n]:
            program.at_least(program.sum_of([("stored", i, n) for i in storers[n]]), 1)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", help="what KILN_EXPLAIN=FILE.jsonl wrote")
    parser.add_argument("--depth", type=int, default=14, help="operations that a kernel may make of a value (14)")
    parser.add_argument("--seconds", type=float, default=300, help="for the solver (300)")
    options = parser.parse_args()
    with open(options.report) as lines:
        reports = [r for r in map(json.loads, lines) if r.get("nodes")]
    if not reports:
        sys.exit(f"{options.report} has no plan")
    plan = Plan(max(reports, key=lambda r: len(r["nodes"])))
    program = formulate(plan, options.depth)
    chosen = program.solve(options.seconds)

    here = [i for i in range(len(plan.kernels)) if plan.flexible[i]]
    fixed = sum(plan.traffic(i) for i in range(len(plan.kernels)) if not plan.flexible[i])
    always = sum(plan.bytes(n) for i in here for n in plan.kernels[i]["outputs"] if not plan.is_elementwise(n))
    planned = sum(plan.traffic(i) for i in here)
    least = always + sum(plan.bytes(n) for what, _, n in chosen if what != "made")
    print(f"{len(plan.nodes)} nodes, {len(plan.kernels)} kernels and calls: {(fixed + planned) / 1e6:.1f} MB planned, "
          f"{(fixed + least) / 1e6:.1f} MB at least ({(planned - least) / (fixed + planned):.2%} less); "
          f"{planned / 1e6:.1f} MB are those of kernels that could choose")
    now = {n for i in here for n in plan.kernels[i]["outputs"] if plan.is_elementwise(n)}
    then = {n for what, _, n in chosen if what == "stored"}
    for title, nodes in (("stored now alone", now - then), ("stored by the least alone", then - now)):
        groups = collections.Counter((plan.op(n), plan.nodes[n]["dtype"], tuple(plan.nodes[n]["shape"])) for n in nodes)
        size = {g: c * math.prod(g[2]) * SIZE[g[1]] / 1e6 for g, c in groups.items()}
        for (op, dtype, shape), mb in sorted(size.items(), key=lambda item: -item[1])[:8]:
            if mb >= 0.1:
                print(f"  {title}: {groups[op, dtype, shape]} x {op} {dtype} {shape}, {mb:.1f} MB")


if __name__ == "__main__":
    main()
