#!/usr/bin/env bash
# Builds the tests with a sanitizer and runs them in shards: tools/sanitize.sh address|thread [GTEST FILTER]
# `address` is the address, leak and undefined-behaviour sanitizers together. Machine code that Kiln generates, and LLVM, TBB
# and CUDA's libraries, are not built with them: what they do to memory is not seen, what is suppressed for them says
# why in tools/suppressions/. Without a filter, the backend's tests run on the fake driver as well. ONLY (a regular
# expression over test files) builds a part, JOBS is the number of processes. A line a shard; exit code 1 if any failed.
# Logs: out/sanitize/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  address) preset=asan ;;
  thread) preset=tsan ;;
  *) sed -n '2,7p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
# Not what measures, what fills memory, and what a sanitizer cannot follow (threads after a fork, exit in mid-flight).
filter=${2:--Fuzz.*:*MathUlp*:OtherTargets.*:MoreThan*:OutOfMemory.IsADeviceErrorThatSaysWhatWasComputed:Measure.*}
jobs=${JOBS:-$(nproc)}
logs=out/sanitize/$preset
mkdir -p build "$logs"

[[ -n ${SKIP_BUILD:-} ]] || {
  cmake --preset "$preset" ${ONLY:+-DKILN_TEST_ONLY="$ONLY"} >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
  ninja -C "build/$preset" -j "$jobs" kiln_tests || exit 1
}

here=$PWD/tools/suppressions
export KILN_CACHE=off KILN_CHECK=key KILN_TEST_FUZZ_SECONDS=${KILN_TEST_FUZZ_SECONDS:-5}
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:handle_segv=1:allocator_may_return_null=1:${ASAN_OPTIONS:-}
export LSAN_OPTIONS=suppressions=$here/leak.txt:print_suppressions=0:${LSAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
export TSAN_OPTIONS=suppressions=$here/thread.txt:ignore_noninstrumented_modules=1:history_size=4:${TSAN_OPTIONS:-}

# Many shards: the first finding ends its shard.
shards=$(( 8 * jobs ))
rm -f "$logs"/*.log
run_shard() {  # number
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$1 "build/$preset/bin/kiln_tests" --gtest_brief=1 --gtest_filter="$filter" \
    >"$logs/$1.log" 2>&1
  report "shard $1" $? "$logs/$1.log"
}
report() {  # name, exit code, log
  echo "$preset $1: $([[ $2 == 0 ]] && echo ok || echo "FAILED ($2)") ($3)"
  [[ $2 == 0 ]] || grep -E "^(SUMMARY|\[  FAILED)|runtime error:" "$3" | sort | uniq -c | head -20
  return "$2"
}
export preset filter logs shards
export -f run_shard report
failed=0
seq 0 $(( shards - 1 )) | xargs -P "$jobs" -I{} bash -c 'run_shard {} || exit 1' || failed=1

# The GPU backend's tests, on the driver without a GPU.
if [[ -z ${2:-} ]]; then
  ctest --test-dir "build/$preset" -R '^cuda\.fake_driver$' --output-on-failure >"$logs/fake_driver.log" 2>&1
  report "fake driver" $? "$logs/fake_driver.log" || failed=1
fi
exit $failed
