#!/bin/sh
# get.sh FROM [PREFIX]: installs rockery below PREFIX (/usr/local for root, ~/.local for others) from the
# packages of `make dist`, for jobs of CI. It needs neither root nor a compiler, but curl or wget for
# addresses.
#
# FROM is a folder with packages or its address, such as that of a release
# (https://github.com/OWNER/rockery/releases/download/v0.1.0), or one tarball or its address. The tarball's
# SHA-256 has to be that of ROCKERY_SHA256, or else that of the folder's SHA256SUMS.
set -eu
die() { echo "get.sh: $*" >&2; exit 1; }

[ $# -ge 1 ] && [ $# -le 2 ] && [ "$1" ] || die "call it with FROM and, if you like, PREFIX: FROM is a" \
  "folder with packages, a tarball, or the address of one"
from=${1%/}
if [ "$(id -u)" = 0 ]; then default=/usr/local; else default=$HOME/.local; fi
prefix=${2:-$default}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# get PLACE FILE: a copy of what is at an address or a path.
get() {
  case $1 in
    http://* | https://* | file://*)
      if command -v curl >/dev/null; then
        curl -fsSL --retry 2 -o "$2" "$1" || die "cannot get $1"
      elif command -v wget >/dev/null; then
        case $1 in file://*) die "wget does not read $1: install curl, or name the path" ;; esac
        wget -q -O "$2" "$1" || die "cannot get $1"
      else
        die "neither curl nor wget: install one of them"
      fi
      ;;
    *://*) die "$1: addresses begin with http://, https:// or file://" ;;
    *) cp "$1" "$2" || die "cannot read $1" ;;
  esac
}

machine=$(uname -m)
case $from in
  *.tar.gz)
    tarball=$from
    sum=${ROCKERY_SHA256:-}
    case $from in
      http://* | https://*) [ "$sum" ] || die "set ROCKERY_SHA256 to the checksum of $from: SHA256SUMS of" \
        "its release has it" ;;
    esac
    ;;
  *)
    get "$from/SHA256SUMS" "$work/sums"
    line=$(grep "  rockery-[^ ]*-$machine-linux\.tar\.gz\$" "$work/sums") || die "$from has no tarball for" \
      "$machine: docs/install.md says how rockery is built from source"
    [ "$(echo "$line" | wc -l)" = 1 ] || die "$from has several tarballs for $machine: name one"
    tarball=$from/${line#*  }
    sum=${ROCKERY_SHA256:-${line%% *}}
    ;;
esac
get "$tarball" "$work/rockery.tar.gz"
if [ "$sum" ]; then
  found=$(sha256sum "$work/rockery.tar.gz")
  [ "${found%% *}" = "$sum" ] || die "$tarball has the SHA-256 ${found%% *} and not $sum: nothing is" \
    "installed"
fi
tar -xzf "$work/rockery.tar.gz" -C "$work"
# The C library of Alpine is another one, on which nothing of a package runs.
"$work"/rockery-*/bin/rockery --version >"$work/version" 2>&1 || die "the command does not run here, which" \
  "needs glibc 2.28 or newer on $machine: $(cat "$work/version")"
"$work"/rockery-*/install.sh "$prefix"
