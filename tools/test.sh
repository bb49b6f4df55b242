#!/usr/bin/env bash
# Installs what is missing, builds and runs the tests: tools/test.sh [ctest arguments], for example
#   tools/test.sh -R DiskCache
#   tools/test.sh -E Package -j1
#   PRESET=no-compilers tools/test.sh
# Its last line is ctest's, its exit code is ctest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/build.sh
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}
exec ctest --test-dir "build/${PRESET:-release}" --output-on-failure "$@"
