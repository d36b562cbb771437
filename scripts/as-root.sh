#!/usr/bin/env bash
# as-root.sh COMMAND…: runs it where network namespaces can be made: as root, or as root of a user namespace
# of its own, which changes nothing outside of it.
set -euo pipefail
# Users of Debian have no sbin in their PATH, and sysctl lies there.
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
((EUID)) || exec "$@"
in_a_namespace=(unshare --user --map-root-user --mount)
if ! "${in_a_namespace[@]}" true 2>/dev/null; then
  echo "as-root: not root, and this system gives users no namespaces: call it with sudo" >&2
  exit 1
fi
# ip keeps the names of network namespaces below /run, where only the real root may write.
exec "${in_a_namespace[@]}" sh -c 'mount -t tmpfs run /run && exec "$@"' as-root "$@"
