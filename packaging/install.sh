#!/bin/sh
# install.sh [PREFIX]: copies rockery below PREFIX, which is /usr/local for root and ~/.local for other users.
# It needs no compiler. PREFIX may be moved or deleted as a whole afterwards: the command finds its libraries
# by its own place.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ]; then default=/usr/local; else default=$HOME/.local; fi
prefix=${1:-$default}
mkdir -p "$prefix"
cp -R "$here/bin" "$here/lib" "$here/share" "$prefix/"
# Units start the command of this installation.
absolute=$(cd "$prefix" && pwd)
find "$absolute/share/doc/rockery/examples" -name '*.service' | while IFS= read -r unit; do
  sed -i "s|^ExecStart=[^ ]*/rockery |ExecStart=$absolute/bin/rockery |" "$unit"
done
echo "installed in $prefix: try '$prefix/bin/rockery run -- ibv_devices'"
