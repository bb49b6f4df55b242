#!/usr/bin/env bash
# Takes a census of kernels: what the CPU and a GPU would run, in the default, strict and deterministic modes, for random
# programs. A line a kernel: device, mode, its key, how often, and the first program (seed) that has it.
#   tools/census.sh FILE [PROGRAMS] [SEED]     default: 20000 programs from seed 1
#   tools/census.sh --compare OLD NEW          what one has and the other has not; exit code 1 if anything
# A change that moves code has the census that it had: take one of each build, and compare.
# PRESET chooses the build (default: release), JOBS the number of processes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == --compare && $# == 3 ]]; then
  changed=$(diff <(cut -d' ' -f1-3 "$2" | sort) <(cut -d' ' -f1-3 "$3" | sort) || true)
  for place in 'cpu default' 'cpu deterministic' 'cpu strict' 'cuda default' 'cuda deterministic' 'cuda strict'; do
    echo "$place: $(grep -c "^$place" "$3" || true) kernels, $(grep -c "^< $place" <<<"$changed" || true) gone," \
      "$(grep -c "^> $place" <<<"$changed" || true) new"
  done
  [[ -z $changed ]]
  exit
fi
[[ $# -ge 1 && ${1:-} != -* ]] || { sed -n '2,8p' "${BASH_SOURCE[0]}"; exit 2; }

file=$1 programs=${2:-20000} seed=${3:-1} jobs=${JOBS:-$(nproc)}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
share=$(( (programs + jobs - 1) / jobs ))
pids=()
for (( j = 0; j < jobs; ++j )); do
  left=$(( programs - j * share ))
  (( left > 0 )) || break
  KILN_CACHE=off KILN_TEST_CENSUS=$parts/$j KILN_TEST_FUZZ_PROGRAMS=$(( left < share ? left : share )) \
    KILN_TEST_FUZZ_SEED=$(( seed + j * share )) "build/${PRESET:-release}/bin/kiln_tests" --gtest_brief=1 \
    --gtest_filter=Census.KernelsOfRandomPrograms >"$parts/$j.log" 2>&1 &
  pids+=($!)
done
failed=0
for (( j = 0; j < ${#pids[@]}; ++j )); do wait "${pids[$j]}" || { failed=1; tail -20 "$parts/$j.log" >&2; }; done
cat "$parts"/[0-9]* | grep -E '^(cpu|cuda) ' | grep -v ': [0-9]* kernels$' |
  awk '{key = $1 " " $2 " " $3; count[key] += $4; if (!(key in seed) || $5 < seed[key]) seed[key] = $5} END {for (k in count) print k, count[k], seed[k]}' |
  LC_ALL=C sort >"$file"
for place in 'cpu default' 'cpu deterministic' 'cpu strict' 'cuda default' 'cuda deterministic' 'cuda strict'; do
  echo "$place: $(grep -c "^$place" "$file" || true) kernels"
done
exit $failed
