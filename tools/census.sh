#!/usr/bin/env bash
# Takes a census of kernels: what the CPU and a GPU would run, in the default, strict and deterministic modes. A line a
# kernel: device, mode, its key, the hash of its CUDA C (-: a CPU's), how often, and the first program (seed or test).
#   tools/census.sh FILE [PROGRAMS] [SEED]     of random programs: 20000 from seed 1
#   tools/census.sh --tests FILE [FILTER]      of all tests, or GoogleTest's FILTER of them
#   tools/census.sh --compare OLD NEW          what one has and the other has not; exit code 1 if anything
#   tools/census.sh --shapes [SHAPES]          how many kernels serve a program over random shapes, 1000 of ranks 1 to 4
# A change that moves code has the census that it had: take one of each build, and compare.
# PRESET chooses the build (default: release), JOBS the number of processes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
places=('cpu default' 'cpu deterministic' 'cpu strict' 'cuda default' 'cuda deterministic' 'cuda strict')
export KILN_CACHE=off

run() { "build/${PRESET:-release}/bin/kiln_tests" --gtest_brief=1 "$@"; }

compare() {  # OLD NEW
  local changed place
  changed=$(diff <(cut -d' ' -f1-4 "$1" | sort) <(cut -d' ' -f1-4 "$2" | sort) || true)
  for place in "${places[@]}"; do
    echo "$place: $(grep -c "^$place" "$2" || true) kernels, $(grep -c "^< $place" <<<"$changed" || true) gone," \
      "$(grep -c "^> $place" <<<"$changed" || true) new"
  done
  [[ -z $changed ]]
}

# The parts of a census as one, sorted.
join() {  # FILE PART...
  local file=$1 place
  shift
  cat "$@" | awk '{key = $1 " " $2 " " $3 " " $4; count[key] += $5
      if (!(key in first) || ($6 + 0 > 0 ? $6 + 0 < first[key] + 0 : $6 < first[key])) first[key] = $6}
    END {for (k in count) print k, count[k], first[k]}' | LC_ALL=C sort >"$file"
  for place in "${places[@]}"; do echo "$place: $(grep -c "^$place" "$file" || true) kernels"; done
}

random_programs() {  # FILE PROGRAMS SEED
  local jobs=${JOBS:-$(nproc)} share left j failed=0 pids=()
  share=$(( ($2 + jobs - 1) / jobs ))
  for (( j = 0; j < jobs; ++j )); do
    left=$(( $2 - j * share ))
    (( left > 0 )) || break
    KILN_TEST_CENSUS=$parts/$j KILN_TEST_FUZZ_PROGRAMS=$(( left < share ? left : share )) \
      KILN_TEST_FUZZ_SEED=$(( $3 + j * share )) run --gtest_filter=Census.KernelsOfRandomPrograms >"$parts/$j.log" 2>&1 &
    pids+=($!)
  done
  for (( j = 0; j < ${#pids[@]}; ++j )); do wait "${pids[$j]}" || { failed=1; tail -20 "$parts/$j.log" >&2; }; done
  join "$1" "$parts"/*[0-9]
  return $failed
}

# What plans many graphs besides (fuzzing, the census itself) is left out, and what runs the suite's programs for
# other targets. A test that fails is named; the census stands.
all_tests() {  # FILE FILTER
  local jobs=${JOBS:-$(nproc)} j pids=()
  for (( j = 0; j < jobs; ++j )); do
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$j KILN_TIER=vm KILN_TEST_CENSUS_OF_TESTS=$parts/$j \
      run --gtest_filter="$2" >"$parts/$j.log" 2>&1 &
    pids+=($!)
  done
  for (( j = 0; j < ${#pids[@]}; ++j )); do wait "${pids[$j]}" || grep -E '^\[  FAILED' "$parts/$j.log" >&2 || true; done
  join "$1" "$parts"/*[0-9]
}

parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
case ${1:-} in
  --compare) [[ $# == 3 ]] && compare "$2" "$3" ;;
  --tests) [[ $# -ge 2 ]] && all_tests "$2" "${3:--Fuzz.*:Census.*:*MathUlp*:OtherTargets.*}" ;;
  --shapes)
    KILN_TEST_CENSUS_SHAPES=${2:-1000} run --gtest_filter=Census.ClassesOfKernelsOverRandomShapes |
      grep -v -E '^(Running main|\[==|\[  PASSED|$)'
    ;;
  '' | -*) sed -n '2,10p' "${BASH_SOURCE[0]}" && exit 2 ;;
  *) random_programs "$1" "${2:-20000}" "${3:-1}" ;;
esac
