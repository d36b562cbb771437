#!/usr/bin/env bash
# dist.sh [--build | --tests | --tools | OUT]: builds rockery for glibc 2.28 and later, and makes packages of
# it in OUT (dist): a tarball, .deb, .rpm, a Python wheel, a bill of materials, checksums. With --build it
# only builds. Either way target/dist/built-x86_64 then has the name of the folder with what was built, for
# `make install BUILT=FOLDER`. With --tests it also builds test programs that run under an emulator, and lists
# them in target/dist/tests-x86_64; with --tools it only gets the linker and OpenSSL.
# ARCH=aarch64 does this for 64-bit ARM, and ARCH="x86_64 aarch64" for both, with all packages in one folder.
# DIST_PROFILE=packages builds in a fraction of the time, for tests.
#
# The linker is zig's, which has the symbol versions of every release of glibc, so that a build on a new
# distribution runs on older ones, and needs nothing else for another processor. OpenSSL is linked statically:
# releases of it differ among distributions.
set -euo pipefail
umask 022
root=$(cd "$(dirname "$0")/.." && pwd)
what=${1:-$root/dist}
[[ $what == --* ]] || what=$(realpath -m "$what")
cd "$root"
profile=${DIST_PROFILE:-release}
glibc=2.28
die() { echo "dist: $*" >&2; exit 1; }
[[ $(uname -m) == x86_64 ]] || die "packages are built on x86-64 only"
read -ra architectures <<<"${ARCH:-x86_64}"
for architecture in ${architectures[@]+"${architectures[@]}"}; do
  case $architecture in
    x86_64 | aarch64) ;;
    *) die "ARCH is $ARCH: rockery runs on x86_64 and aarch64" ;;
  esac
done
case $what in
  --build | --tests | --tools | /*) ;;
  *) die "$what is not known: --build, --tests, --tools, or a folder" ;;
esac

folder=$root/target/dist
mkdir -p "$folder"
# Tests call this script from several processes.
exec 9>"$folder/lock"
flock 9

# zig and cargo-zigbuild, of the versions in packaging/requirements.txt.
tools=$folder/tools
stamp=$(sha256sum <packaging/requirements.txt)
if [[ ! -r $tools/made-by || $(cat "$tools/made-by") != "$stamp" ]]; then
  rm -rf "$tools"
  python3 -m venv "$tools" || die "this needs Python's module venv (the package python3-venv)"
  "$tools/bin/pip" install -q --disable-pip-version-check --require-hashes -r packaging/requirements.txt
  echo "$stamp" >"$tools/made-by"
fi

# openssl_here: where this machine has OpenSSL's headers and static libraries.
openssl_here() {
  includes=$(pkg-config --variable=includedir openssl) libraries=$(pkg-config --variable=libdir openssl)
  [[ -e $libraries/libssl.a ]] || die "no $libraries/libssl.a: install the package libssl-dev"
  machine_includes=$includes/x86_64-linux-gnu
}
# openssl_of_arm: the same for 64-bit ARM, of Debian 12, whose C library is old enough. That C library is
# fetched too: the command writes its own manual pages and completions, and an emulator runs it.
openssl_of_arm() {
  local unpacked=$folder/debian-$architecture
  local keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
  if [[ ! -e $unpacked/complete ]]; then
    . "$root/scripts/other-apt.sh"
    local uri=${DEBIAN_MIRROR:-$(mirror Debian)} package
    [[ -r $keyring ]] || die "no $keyring: install the package debian-archive-keyring, or set DEBIAN_KEYRING"
    rm -rf "$unpacked"
    mkdir -p "$unpacked"
    (
      configure "$unpacked/apt" "$uri" bookworm main "$keyring" arm64
      cd "$unpacked"
      apt-get update -q >log 2>&1 && apt-get download -q libssl-dev libc6 >>log 2>&1 ||
        { cat log >&2; exit 1; }
    ) || die "cannot get Debian's libssl-dev and libc6 for $architecture"
    for package in "$unpacked"/*.deb; do dpkg -x "$package" "$unpacked"; done
    : >"$unpacked/complete"
  fi
  includes=$unpacked/usr/include libraries=$unpacked/usr/lib/aarch64-linux-gnu
  machine_includes=$includes/aarch64-linux-gnu
}

# OpenSSL's headers and static libraries, and nothing else of this machine: its C library is too new.
prepare_openssl() {
  local openssl=$folder/openssl-$architecture includes libraries machine_includes stamp
  case $architecture in
    x86_64) openssl_here ;;
    aarch64) openssl_of_arm ;;
  esac
  stamp=$(sha256sum "$libraries"/lib{ssl,crypto}.a)
  # A copy that is newer than the last build would have cargo build everything above OpenSSL again.
  if [[ ! -r $openssl/made-of || $(cat "$openssl/made-of") != "$stamp" ]]; then
    rm -rf "$openssl"
    mkdir -p "$openssl"/{include,lib}
    cp -rp "$includes/openssl" "$openssl/include/"
    if [[ -d $machine_includes/openssl ]]; then
      cp -p "$machine_includes"/openssl/* "$openssl/include/openssl/"
    fi
    cp -p "$libraries"/lib{ssl,crypto}.a "$openssl/lib/"
    echo "$stamp" >"$openssl/made-of"
  fi
  export OPENSSL_STATIC=1 OPENSSL_DIR=$openssl
}

# Users install packages more often than anyone builds them: each program is optimized as a whole. Names of
# functions remain, for backtraces; lines are not needed to run.
if [[ $profile == release ]]; then
  export CARGO_PROFILE_RELEASE_LTO=thin CARGO_PROFILE_RELEASE_STRIP=debuginfo
fi
export CARGO_TARGET_DIR=$folder
# No path of this machine is in what is built, so that another folder gives the same packages.
registry=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$root=/rockery --remap-path-prefix=$registry=/cargo"

# build: what is asked for, for `architecture`. Writes where it is to target/dist/built-ARCHITECTURE.
build() {
  local triple=$architecture-unknown-linux-gnu packages built
  if [[ ! -d $(rustc --print target-libdir --target "$triple") ]]; then
    rustup target add "$triple" || die "the compiler has no standard library for $triple: call 'rustup" \
      "target add $triple'"
  fi
  # Cargo calls the folder of the profile dev `debug`.
  built=$folder/$triple/${profile/#dev/debug}
  prepare_openssl
  [[ $what != --tools ]] || return 0
  packages=(--workspace --lib --bin rockery --bin rockery-bench --bin rockery-device-plugin
    --exclude rockery-tidy --exclude rockery-programs)
  if [[ $what == --tests ]]; then
    packages+=(--bin rockery-torture --bin host-test-processes)
  else
    packages+=(--exclude rockery-torture)
  fi
  PATH=$tools/bin:$PATH cargo zigbuild --locked --target "$triple.$glibc" --profile "$profile" \
    "${packages[@]}"
  # For the bill of materials.
  sed -nE 's/^# *define OPENSSL_VERSION_TEXT "OpenSSL ([^ ]+) .*/\1/p' \
    "$OPENSSL_DIR/include/openssl/opensslv.h" >"$built/openssl-version"
  [[ $what != --tests ]] || build_tests
  echo "$built" >"$folder/built-$architecture"
  all+=("$built")
}

# build_tests: tests as programs that need nothing else: those within the sans-IO crates, and within the
# crates for pages, rings and guarded copies. With ROCKERY_TEST_ARM_ALL=1 the sans-IO crates' integration
# tests too.
build_tests() {
  local log=$folder/tests-$architecture.log
  : >"$log"
  test_programs --lib -p rockery-wire -p rockery-rnic -p rockery-fabric -p rockery-os -p rockery-buffer \
    -p rockery-link -p rockery-host
  [[ ! ${ROCKERY_TEST_ARM_ALL:-} ]] ||
    test_programs --test it -p rockery-wire -p rockery-rnic -p rockery-fabric
  {
    echo "$built/rockery-torture"
    echo "$built/host-test-processes"
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$log" | sed "s,^[^/],$root/&,"
  } >"$folder/tests-$architecture"
}

# test_programs ARGUMENT…: builds tests. Cargo says what they are called, which the log keeps.
test_programs() {
  PATH=$tools/bin:$PATH cargo-zigbuild test --no-run --locked --target "$triple.$glibc" --profile "$profile" \
    "$@" 2> >(tee -a "$log" >&2)
}

all=()
for architecture in "${architectures[@]}"; do build; done
[[ $what == --* ]] || packaging/package.py "$what" "${all[@]}"
