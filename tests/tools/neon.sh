#!/usr/bin/env bash
# The processor's kernels on aarch64: compiles the library's tests for it and runs them in an emulator, on processors
# without and with the extensions that kernels have a route for.
#   tests/tools/neon.sh DIR
# Needs rustup (for Rust's own target, which brings a C library) and apt's sources (for qemu, unpacked to DIR;
# nothing is installed). Fails when a test fails, or when a route was not taken.
set -euo pipefail
D=$(mkdir -p "${1:?folder}" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."
T=aarch64-unknown-linux-musl

rustup target list --installed | grep -x "$T" >/dev/null || rustup target add "$T"

# The first of these packages that has a static emulator (which one it is differs between Debian's releases).
emulator() {
  for file in "$D"/root/usr/bin/qemu-aarch64-static "$D"/root/usr/bin/qemu-aarch64; do
    if "$file" --version >/dev/null 2>&1; then echo "$file"; return; fi
  done
}
Q=$(emulator)
for package in qemu-user-static qemu-user; do
  [ -z "$Q" ] || break
  if [ "$(id -u)" = 0 ]; then apt-get -qq update; fi
  (cd "$D" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg -x "$package"_*.deb root && rm ./*.deb)
  Q=$(emulator)
done
[ -n "$Q" ] || { echo "no emulator for aarch64" >&2; exit 1; }

# Rust's own linker, and an empty libdl, whose functions musl has in libc.
printf '!<arch>\n' > "$D/libdl.a"
cat > "$D/rust-lld" <<LINK
#!/bin/sh
exec "$(dirname "$(rustc --print target-libdir)")/bin/rust-lld" "\$@" -L "$D"
LINK
chmod +x "$D/rust-lld"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER="$D/rust-lld"

# The lints of CI, which sees this code on no other machine.
cargo clippy --locked --no-default-features --target "$T" --lib -- -D warnings

# The processor is no part of the build, so one build does for all.
run() {
  local cpu=$1 kernels=$2 out
  out=$(CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER="$Q -cpu $cpu" \
    cargo test --locked --no-default-features --target "$T" --lib -- --nocapture cpu:: 2>&1) || { echo "$out"; exit 1; }
  grep -q "kernels: $kernels\$" <<< "$out" || { echo "$out"; echo "$cpu did not run $kernels" >&2; exit 1; }
  echo "$cpu ($kernels): $(grep '^test result' <<< "$out")"
}
run cortex-a53 "portable, NEON"
run cortex-a76 "portable, NEON, NEON + dotprod"
run max "portable, NEON, NEON + dotprod, NEON + i8mm"
