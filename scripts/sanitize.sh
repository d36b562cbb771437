#!/usr/bin/env bash
# sanitize.sh [miri] [thread] [address] [attacks]: shared-memory channels under Miri, ThreadSanitizer and
# AddressSanitizer, and servers under AddressSanitizer while they are attacked (as root); without arguments,
# all four. Needs rustup, and installs the nightly toolchain and the standard library's sources where they
# are missing. docs/testing.md says what each shows.
set -euo pipefail
cd "$(dirname "$0")/.."
toolchain=nightly
target=$(rustc -vV | sed -n 's/^host: //p')
rustup toolchain list | grep -q "^$toolchain" || rustup toolchain install "$toolchain" --profile minimal
rustup component add --toolchain "$toolchain" miri rust-src >/dev/null

# Schedules that Miri tries for each test.
SEEDS=${SEEDS:-16}

miri() {
  export CARGO_TARGET_DIR=target/miri
  # Addresses travel as numbers through verbs, so pointers come from integers here and there.
  export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-many-seeds=0..$SEEDS"
  cargo +$toolchain miri test -p rockery-link --lib races
  cargo +$toolchain miri test -p rockery-host --lib an_entry_is_read_whole
}

sanitized() {
  # The doctests' compiler would need the same flags. One test counts what programs answer in time, and these
  # are ten times slower. The model checker switches stacks, which the sanitizers do not know.
  local sanitizer=$1
  shift
  RUSTFLAGS="-Zsanitizer=$sanitizer" CARGO_TARGET_DIR=target/$sanitizer \
    cargo +$toolchain test "$@" --target "$target" -p rockery-link -p rockery-host --lib --tests -- \
    --skip acknowledgements_travel_with_the_answer --skip model::
}

thread() {
  local suppressions
  suppressions=$(mktemp)
  # A program that looks at memory which a peer writes to, as RDMA programs do: no language calls that
  # ordered.
  echo 'race:it::pair::Side*::byte' >"$suppressions"
  TSAN_OPTIONS="suppressions=$suppressions halt_on_error=1" sanitized thread -Zbuild-std
  rm "$suppressions"
}

address() {
  # Allocations and copies are the C library's, which it replaces: the standard library need not be built.
  sanitized address
}

attacks() {
  # The command alone: programs that are not built with the sanitizer cannot load libraries that are.
  local built=target/address/$target/debug file
  cargo build --workspace --all-targets
  RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/address \
    cargo +$toolchain build --target "$target" -p rockery --bin rockery
  for file in target/debug/*.so target/debug/rockery-bench target/debug/rockery-device-plugin; do
    ln -sf "$PWD/$file" "$built/"
  done
  # Freed memory is kept for a while, which the bounds of the attacks do not know.
  ROCKERY_TEST_IS_BUILT=1 CARGO_TARGET_DIR=$PWD/$built/.. ASAN_OPTIONS=quarantine_size_mb=8 \
    scripts/as-root.sh target/debug/attack --short --sanitized
}

(($#)) || set -- miri thread address attacks
for which; do
  case $which in
    miri | thread | address | attacks) ("$which") ;;
    *) sed -n '2,5s/^# //p' "$0" >&2 && exit 2 ;;
  esac
done
