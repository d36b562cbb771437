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
# check_tests WHAT COMMAND…: the same with the number of tests that passed. Without any, nothing was tested.
check_tests() {
  local before number last=${#rows[@]}
  before=$(wc -l <"$log")
  check "$@"
  number=$(tail -n +"$((before + 1))" "$log" |
    awk '/^test result: / { sum += $4 } END { print sum + 0 }')
  rows[last]=${rows[last]% |}", $number tests |"
  ((number)) || rows[last]=${rows[last]/passed/**failed**}
}
tests() { "$cargo" test --no-fail-fast "$@"; }
programs() { CARGO=$cargo scripts/as-root.sh scripts/test.py -p rockery-programs "$@"; }

row machine "$(uname -m), $(nproc) processors, pages of $(getconf PAGESIZE) bytes"
row processor "$(lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | sort -u | paste -sd ',')"
row kernel "$(uname -r)"
row distribution "$(. /etc/os-release && echo "$PRETTY_NAME")"
row commit "$(git -c safe.directory='*' rev-parse --short HEAD 2>/dev/null || echo unknown)"
check "build" "$cargo" build --workspace --all-targets
check_tests "protocols, simulator, readers of configurations" make quick
check_tests "operating system, links, rings (\`os\`, \`link\`)" tests -p rockery-os -p rockery-link
check_tests "devices, shared memory, killed peers (\`host\`)" tests -p rockery-host
check_tests "the C library: symbols, layouts, calls (\`abi\`, \`verbs\`)" \
  tests -p rockery-abi -p rockery-verbs
check_tests "two devices over a bad network and rings, by seed" tests --release -p rockery-torture
check_tests "perftest: every operation" programs perftest::
check_tests "ping-pongs, with every byte checked" programs pingpong::
check_tests "programs on one host" programs same_host::
check_tests "connections: rping, ucmatose, cmtime" programs places::

printf '\n| what | result |\n|---|---|\n'
printf '%s\n' "${rows[@]}"
printf '\nthe output of all commands: %s\n' "$log"
[[ ${rows[*]} != *"**failed**"* ]]
