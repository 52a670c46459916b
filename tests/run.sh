#!/usr/bin/env bash
# The one command that passes the tests, on a fresh Debian or Ubuntu machine with Rust.
#
#   tests/run.sh          everything that CI runs
#   tests/run.sh --full   and the long proofs, by hand
#
# Vulkan tests run on Mesa's CPU driver under the Khronos validation layer, both unpacked to target/vulkan (nothing is
# installed for them). With COLI_VULKAN=system they take the machine's own loader, driver and layer.
set -euo pipefail
cd "$(dirname "$0")/.."

full=0
case "${1:-}" in
  "") ;;
  --full) full=1 ;;
  *) echo "usage: tests/run.sh [--full]" >&2; exit 2 ;;
esac

# cc links Rust programs, c++ builds the shader compiler.
if ! command -v cc >/dev/null || ! command -v c++ >/dev/null; then
  echo "installing compilers (gcc, g++)"
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
  $sudo apt-get update -qq && $sudo apt-get install -y -qq gcc g++ libc6-dev
fi

target=()
if [ "${COLI_VULKAN:-}" != system ]; then
  [ -f target/vulkan/env.sh ] || tests/tools/vulkan-sysroot.sh target/vulkan
  . target/vulkan/env.sh
  target=(--target x86_64-unknown-linux-gnu)
fi
# A Vulkan test that cannot run, or runs unwatched, fails.
export COLI_REQUIRE_VULKAN=1 COLI_REQUIRE_VALIDATION=1

# Snapshots must be reviewed: a new or changed one fails, and leaves a .snap.new beside the old.
export INSTA_UPDATE="${INSTA_UPDATE:-$([ -n "${CI:-}" ] && echo no || echo new)}"

cargo test --locked "${target[@]}"

if [ "$full" = 1 ]; then
  echo "the processor's kernels on aarch64, three kinds:"
  tests/tools/neon.sh target/neon
  echo "kernels through AMD's compiler, six families:"
  tests/tools/amd.sh target/radv
  echo "GPU-assisted validation, one test a process (minutes each):"
  for test in models::qwen3 models::glm_moe_dsa_w256 models::debugging models::faults random::rotated_experts \
    kernels::f32_weights kernels::int4_row_weights kernels::mxfp4_weights kernels::e8_weights kernels::caches_of_f16; do
    COLI_VALIDATION=gpu cargo test --locked "${target[@]}" --test gpu -- --exact "$test" --nocapture
  done
  echo "fifty kills of a conversion:"
  COLI_KILLS=50 cargo test --locked "${target[@]}" --test suite -- --nocapture killed_and_resumed
  original="${COLI_DICTIONARY:-../shared/models/dictionary-glm52}"
  if [ -d "$original" ]; then
    COLI_DICTIONARY="$(realpath "$original")" cargo test --release --locked --test suite -- --ignored --nocapture demo
    echo "quality of the bf16 original, then of the embedded container:"
    cargo run --release --locked -q -- bench quality graphs/glm52.ron --model "$original" --list tests/models/dictionary_eval.jsonl
    cargo run --release --locked -q -- bench quality graphs/glm52.ron --list tests/models/dictionary_eval.jsonl
  else
    echo "skipped: the demo model's bf16 original is not at $original (59 MB, not in the repository; set COLI_DICTIONARY)"
  fi
fi
