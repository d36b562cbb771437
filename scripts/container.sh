#!/usr/bin/env bash
# Builds examples/ci/Containerfile and runs the examples in it, as root and as an ordinary user. No registry
# of images is asked: Debian's image is made of Debian's packages, and the first stage, which is
# `make install` in an image with Rust, is carried out here. Needs root; takes minutes and 2 GB.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
((EUID == 0)) || { echo "container: this needs root" >&2; exit 1; }
for package in buildah debootstrap; do
  command -v "$package" >/dev/null || apt-get install -y -q --no-install-recommends "$package"
done
work=$(mktemp -d)
export BUILDAH_ISOLATION=chroot
store() { buildah --root "$work/store" --runroot "$work/run" "$@"; }
clean() { store rm -a >/dev/null; store rmi -a -f >/dev/null; rm -rf "$work"; }
trap clean EXIT

# Where this machine has its own packages from, if it is that Debian.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Release: bookworm' | sed -n 1p)
mirror=${mirror:-http://deb.debian.org/debian}
if ! debootstrap --variant=minbase bookworm "$work/debian" "$mirror" >"$work/log"; then
  tail "$work/log" >&2
  exit 1
fi
base=$(store from scratch)
store add -q "$base" "$work/debian" / >/dev/null
store commit -q "$base" docker.io/library/debian:bookworm >/dev/null

mkdir "$work/context"
make -C "$root" install PREFIX=/usr/local DESTDIR="$work/context/installed"
# The second stage as it stands.
{ printf 'FROM scratch AS build\nCOPY installed /installed\n'
  sed -n '/^FROM .*debian:bookworm$/,$p' "$root/examples/ci/Containerfile"; } >"$work/context/Containerfile"
store bud --pull-never -q -f "$work/context/Containerfile" -t rockery "$work/context"

image=$(store from --pull-never localhost/rockery)
entry=$(store inspect --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' "$image")
in_image() { # USER COMMAND: in a network of its own, as containers have it, since users do not share a port
  unshare --net sh -c 'ip link set lo up && exec "$@"' - buildah --root "$work/store" --runroot "$work/run" \
    run --user "$1" --cap-drop all -v "$root/examples/ci:/src:ro" "$image" -- sh -ec "$2"
}
for user in 0:0 65534:65534; do
  in_image "$user" "$entry ibv_devinfo | grep PORT_ACTIVE"
  in_image "$user" "cc -o /tmp/message-\$(id -u) /src/c/message.c -libverbs; $entry /tmp/message-\$(id -u)"
  in_image "$user" "cd /src/python; $entry /usr/bin/python3 -B -m unittest"
done
echo "container: the examples run in the image"
