#!/bin/sh
# UCX's benchmark between two processes of this machine, over verbs alone: without UCX_TLS they would use
# UCX's own shared memory, and pass on a machine where RDMA does not work. Runs as `rockery run -- ./ucx.sh`.
set -eu
export UCX_TLS=rc_verbs,ud_verbs,self
port=${1:-13337}
ucx_perftest -p "$port" &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
# The server does not say when it listens.
tries=0
until ucx_perftest -p "$port" -t tag_bw -s 65536 -n 2000 -w 10 127.0.0.1; do
  tries=$((tries + 1))
  [ "$tries" -lt 20 ]
  sleep 0.5
done
wait "$server"
