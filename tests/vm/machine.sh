#!/bin/bash
# The machine itself: without two nodes that reach each other over soft-RoCE,
# no other test here means anything.
# vm: --no-module --nodes 2
# checks: 6
. "$(dirname "$0")/lib.sh"

# What perftest's server in node 1 listens with: rdma_cm, or a TCP socket.
listens() {
  case ${1:-} in
    -R) rdma resource show cm_id | grep -q 'state LISTEN.*ib_read_lat' ;;
    *) [ -n "$(ip netns exec n1 ss -Hltn 'sport = :18515')" ] ;;
  esac
}

# perftest's server side in node 1, its client in node 0. The client starts when the
# server listens: one that was started earlier has once crashed inside librdmacm.
read_latency() {
  local server status=0
  ip netns exec n1 ib_read_lat -d rxe1 -s 8 -n 100 "$@" >/dev/null 2>&1 &
  server=$!
  within 30 listens "$@" && timeout "$(seconds 60)" ib_read_lat -d rxe0 -s 8 -n 100 "$@" 10.77.0.2 || status=$?
  [ "$status" = 0 ] || kill "$server"
  wait "$server" && return "$status"
}

path_mtu() { ibv_devinfo -d "$1" | awk '/active_mtu/ { print $2 }'; }

is "two devices" "$(ibv_devices | grep -c 'rxe[01]')" 2
is "path MTU of node 0" "$(path_mtu rxe0)" 4096
is "path MTU of node 1" "$(path_mtu rxe1)" 4096
check "node 0 reaches node 1" ping -q -c 1 -W 5 10.77.0.2
check "READs cross between the nodes" read_latency
check "so do READs on a connection that rdma_cm made" read_latency -R
done_testing
