#!/usr/bin/env bash
# dist.sh [--build | OUT]: builds rockery for glibc 2.28 and later, and makes packages of it in OUT (dist):
# a tarball, .deb, .rpm, a Python wheel, a bill of materials, checksums. With --build it only builds. Either
# way target/dist/built then has the name of the folder with what was built, for `make install BUILT=FOLDER`.
# DIST_PROFILE=packages builds in a fraction of the time, for tests.
#
# The linker is zig's, which has the symbol versions of every release of glibc, so that a build on a new
# distribution runs on older ones. OpenSSL is linked statically: releases of it differ among distributions.
set -euo pipefail
umask 022
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/dist}
[[ $out == --build ]] || out=$(realpath -m "$out")
cd "$root"
profile=${DIST_PROFILE:-release}
glibc=2.28
triple=x86_64-unknown-linux-gnu
die() { echo "dist: $*" >&2; exit 1; }
[[ $(uname -m) == x86_64 ]] || die "packages are built on x86-64 only"

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

# OpenSSL's headers and static libraries, and nothing else of this machine: its C library is too new.
openssl=$folder/openssl
includes=$(pkg-config --variable=includedir openssl) libraries=$(pkg-config --variable=libdir openssl)
[[ -e $libraries/libssl.a ]] || die "no $libraries/libssl.a: install the package libssl-dev"
stamp=$(sha256sum "$libraries"/lib{ssl,crypto}.a)
# A copy that is newer than the last build would have cargo build everything above OpenSSL again.
if [[ ! -r $openssl/made-of || $(cat "$openssl/made-of") != "$stamp" ]]; then
  rm -rf "$openssl"
  mkdir -p "$openssl"/{include,lib}
  cp -rp "$includes/openssl" "$openssl/include/"
  if [[ -d $includes/x86_64-linux-gnu/openssl ]]; then
    cp -p "$includes"/x86_64-linux-gnu/openssl/* "$openssl/include/openssl/"
  fi
  cp -p "$libraries"/lib{ssl,crypto}.a "$openssl/lib/"
  echo "$stamp" >"$openssl/made-of"
fi

# Users install packages more often than anyone builds them: each program is optimized as a whole.
if [[ $profile == release ]]; then export CARGO_PROFILE_RELEASE_LTO=thin; fi
export OPENSSL_STATIC=1 OPENSSL_DIR=$openssl CARGO_TARGET_DIR=$folder
# No path of this machine is in what is built, so that another folder gives the same packages.
registry=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$root=/rockery --remap-path-prefix=$registry=/cargo"
PATH=$tools/bin:$PATH cargo zigbuild --locked --target "$triple.$glibc" --profile "$profile" \
  --workspace --lib --bin rockery --bin rockery-bench --bin rockery-device-plugin --exclude rockery-tidy \
  --exclude rockery-programs --exclude rockery-torture
# Cargo calls the folder of the profile dev `debug`.
built=$folder/$triple/${profile/#dev/debug}
echo "$built" >"$folder/built"
[[ $out == --build ]] || packaging/package.py "$built" "$out"
