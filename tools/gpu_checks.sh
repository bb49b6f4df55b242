#!/usr/bin/env bash
# What is to be checked on a machine with a GPU, beside the folder that tools/gpu_bundle.sh made (this script is in it):
#   checks.sh suite [GTEST FILTER]    the whole suite with the GPU as the default device
#   checks.sh fuzz SECONDS [WORKERS]  random programs, fused and op by op, against the interpreter
#   checks.sh cpu_fuzz PROGRAMS [WORKERS]   the same on the processor, with the vm too, each so many programs
#   checks.sh sanitize [memcheck|initcheck|racecheck|synccheck …]
#                                     the core of the suite under compute-sanitizer (on PATH, or COMPUTE_SANITIZER=FILE),
#                                     SHARDS processes of at most LIMIT seconds
# Logs go to LOGS (default: ./gpu_checks). Ends with a line a check; exit code 1 if any failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tests="$here/run.sh kiln_tests"
logs=${LOGS:-gpu_checks}
mkdir -p "$logs"
export KILN_DEVICE=cuda KILN_CACHE=off KILN_CHECK=key
failed=0

report() { # NAME CODE LOG
  [[ $2 == 0 ]] || failed=1
  echo "$1: $([[ $2 == 0 ]] && echo ok || echo FAILED) ($3)"
}

case ${1:-} in
  suite)
    $tests --gtest_filter="${2:-*-Fuzz.*}" >"$logs/suite.log" 2>&1
    report suite $? "$logs/suite.log"
    grep -E "^\[  (FAILED|SKIPPED|PASSED)" "$logs/suite.log" | sort -u
    ;;
  fuzz)
    workers=${3:-4}
    pids=()
    for (( w = 0; w < workers; ++w )); do
      KILN_TEST_FUZZ_SECONDS=$2 KILN_TEST_FUZZ_SEED=$(( (w + 1) * 10000000 )) \
        $tests --gtest_filter='Fuzz.Fused*:Fuzz.*OpByOp*' >"$logs/fuzz.$w.log" 2>&1 &
      pids+=($!)
    done
    for (( w = 0; w < workers; ++w )); do wait "${pids[$w]}"; report "fuzz $w" $? "$logs/fuzz.$w.log"; done
    grep -h " programs$" "$logs"/fuzz.*.log | awk '{n += $1} END {print "fuzz: " n " programs"}'
    ;;
  cpu_fuzz)
    workers=${3:-$(nproc)}
    share=$(( ($2 + workers - 1) / workers ))
    pids=()
    for (( w = 0; w < workers; ++w )); do
      ( code=0
        for (( done = 0; done < share; done += 1000 )); do  # machine code is never freed: a process for a thousand
          KILN_DEVICE=cpu KILN_NUM_THREADS=2 KILN_TEST_FUZZ_PROGRAMS=$(( share - done < 1000 ? share - done : 1000 )) \
            KILN_TEST_FUZZ_SEED=$(( (w + 1) * 10000000 + done )) $tests --gtest_filter='Fuzz.*' || code=1
        done
        exit $code ) >"$logs/cpu_fuzz.$w.log" 2>&1 &
      pids+=($!)
    done
    for (( w = 0; w < workers; ++w )); do wait "${pids[$w]}"; report "cpu_fuzz $w" $? "$logs/cpu_fuzz.$w.log"; done
    for test in Fused OpByOp Vm; do
      grep -hA1 "RUN.*Fuzz.*$test" "$logs"/cpu_fuzz.*.log | awk -v t=$test '/ programs$/ {n += $1} END {print "cpu_fuzz " t ": " n " programs"}'
    done
    ;;
  sanitize)
    shift
    [[ $# -gt 0 ]] || set -- memcheck initcheck racecheck synccheck
    sanitizer=${COMPUTE_SANITIZER:-compute-sanitizer}
    core='Elementwise.*:Integers.*:Floats.*:Reduce.*:Reductions.*:Gather.*:Scan.*:LogCumSumExp.*:SliceUpdate.*:Concat.*:Permute.*:Flip.*'
    core+=':Index.*:Tile.*:Matmul.*:Einsum.*:Nn.*:Philox.*:NoElements.*:DTypes/UnalignedViews.*:GpuStreams.*'
    core+=':DTypes/RandomPrograms.*float32:OpTable/EveryOp.*/exp:OpTable/EveryOp.*/pow:OpTable/EveryOp.*/floor_divide'
    shards=${SHARDS:-8}
    for tool in "$@"; do
      pids=()
      without=; [[ $tool != racecheck ]] || without=:-GpuStreams.*  # loses track of launches by several threads, and waits
      for (( i = 0; i < shards; ++i )); do
        KILN_TEST_EXACT_MEMORY=1 LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
          GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i timeout "${LIMIT:-540}" \
          "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 5 --show-backtrace no \
          "$here/kiln_tests" --gtest_brief=1 --gtest_filter="${FILTER:-$core}$without" >"$logs/$tool.$i.log" 2>&1 &
        pids+=($!)
      done
      for (( i = 0; i < shards; ++i )); do wait "${pids[$i]}"; report "$tool $i" $? "$logs/$tool.$i.log"; done
      grep -hE "ERROR SUMMARY|RACECHECK SUMMARY|^\[  (FAILED|PASSED)" "$logs/$tool".*.log | sort | uniq -c
      grep -hE "^========= +(Invalid|Uninitialized|Race|Error|Warning|Barrier|     at )" "$logs/$tool".*.log | sort | uniq -c | sort -rn | head -20
    done
    ;;
  *)
    sed -n '2,10p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
exit $failed
