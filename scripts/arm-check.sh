#!/usr/bin/env bash
# arm-check.sh: builds and tests rockery on a machine of 64-bit ARM, and prints a table to send with a report.
# It needs what `make packages` installs; the tests that make network namespaces run as root, by sudo. It runs
# on x86-64 as well, for comparison. What failed is in the log that the last line names.
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
export PATH=$PATH:$HOME/.cargo/bin
log=${ARM_CHECK_LOG:-target/arm-check.log}
mkdir -p "$(dirname "$log")"
: >"$log"

rows=()
row() { rows+=("| $1 | $2 |"); }
# check WHAT COMMAND…: a row with the command's result and its time; what it prints is in the log.
check() {
  local what=$1 begin=$SECONDS result=passed
  shift
  echo "=== $what: $*" >>"$log"
  "$@" >>"$log" 2>&1 || result="**failed**"
  row "$what" "$result, $((SECONDS - begin)) s"
}
tests() { "$cargo" test --no-fail-fast "$@"; }
programs() { CARGO=$cargo scripts/as-root.sh scripts/test.py -p rockery-programs "$@"; }

row machine "$(uname -m), $(nproc) processors, pages of $(getconf PAGESIZE) bytes"
row processor "$(lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | sort -u | paste -sd ',')"
row kernel "$(uname -r)"
row distribution "$(. /etc/os-release && echo "$PRETTY_NAME")"
row commit "$(git -c safe.directory='*' rev-parse --short HEAD 2>/dev/null || echo unknown)"
check "build" "$cargo" build --workspace --all-targets
check "protocols, simulator, readers of configurations" make quick
check "operating system, links, rings (\`os\`, \`link\`)" tests -p rockery-os -p rockery-link
check "devices, shared memory, killed peers (\`host\`)" tests -p rockery-host
check "the C library: symbols, layouts, calls (\`abi\`, \`verbs\`)" tests -p rockery-abi -p rockery-verbs
check "two devices over a bad network and rings, by seed" tests --release -p rockery-torture
check "perftest: every operation" programs perftest::
check "ping-pongs, with every byte checked" programs pingpong::
check "programs on one host" programs same_host::
check "connections: rping, ucmatose, cmtime" programs places::

printf '\n| what | result |\n|---|---|\n'
printf '%s\n' "${rows[@]}"
printf '\nthe output of all commands: %s\n' "$log"
[[ ${rows[*]} != *"**failed**"* ]]
