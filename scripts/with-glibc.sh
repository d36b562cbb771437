#!/usr/bin/env bash
# with-glibc.sh NAME COMMAND…: runs COMMAND so that cargo links against the C library of a distribution that
# scripts/distribution.sh knows, such as debian-11, whose glibc is 2.31. What is built starts there and on all
# that is newer. It lies in target/glibc/NAME/target; OpenSSL is in the binary, since releases of it differ.
set -euo pipefail
name=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
distribution=$root/target/distributions/$name folder=$root/target/glibc/$name
"$root/scripts/distribution.sh" "$name" "$distribution"
libraries=("$distribution"/{usr/,}lib/x86_64-linux-gnu)
die() { echo "with-glibc: $*" >&2; exit 1; }

# copy NAME…: from where the distribution has its libraries, links followed within its root.
copy() {
  local wanted found
  for wanted; do
    found=$(find "${libraries[@]}" -maxdepth 1 -name "$wanted" -print -quit)
    [[ $found ]] || die "$name has no $wanted: is libc6-dev among its packages?"
    cp -L "$found" "$folder/lib/$wanted"
  done
}
rm -rf "$folder/lib"
mkdir -p "$folder/lib"
copy libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1
copy crt1.o Scrt1.o crti.o crtn.o libc_nonshared.a
loader=$(find "${libraries[@]}" -maxdepth 1 -type f -name 'ld-*.so*' -print -quit)
cp "$loader" "$folder/lib/ld-linux-x86-64.so.2"
for library in libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1; do
  ln -s "$library" "$folder/lib/${library%.*}"
done
lib=$folder/lib
echo "GROUP ( $lib/libc.so.6 $lib/libc_nonshared.a AS_NEEDED ( $lib/ld-linux-x86-64.so.2 ) )" >"$lib/libc.so"

export RUSTFLAGS="${RUSTFLAGS:-} -Clink-arg=-B$lib -Lnative=$lib"
export CARGO_TARGET_DIR=$folder/target
export OPENSSL_STATIC=1
OPENSSL_LIB_DIR=$(pkg-config --variable=libdir openssl)
OPENSSL_INCLUDE_DIR=$(pkg-config --variable=includedir openssl)
export OPENSSL_LIB_DIR OPENSSL_INCLUDE_DIR
exec "$@"
