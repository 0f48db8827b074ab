#!/bin/bash
# The machine itself: without two nodes that reach each other over soft-RoCE,
# no other test here means anything.
# vm: --no-module --nodes 2
# checks: 6
. "$(dirname "$0")/lib.sh"

tcp_listens() { [ -n "$(ip netns exec n1 ss -Hltn 'sport = :18515')" ]; }
rdma_cm_listens() { rdma resource show cm_id | grep -q 'state LISTEN.*rping'; }

# over LISTENS SERVER CLIENT...: runs the command line SERVER in node 1 and, when
# LISTENS says so, CLIENT in node 0. Both have to end well.
over() {
  local listens=$1 server status=0
  # shellcheck disable=SC2086
  ip netns exec n1 $2 >/dev/null 2>&1 &
  server=$!
  shift 2
  within 30 "$listens" && timeout "$(seconds 60)" "$@" || status=$?
  [ "$status" = 0 ] || kill "$server"
  wait "$server" && return "$status"
}

path_mtu() { ibv_devinfo -d "$1" | awk '/active_mtu/ { print $2 }'; }

is "two devices" "$(ibv_devices | grep -c 'rxe[01]')" 2
is "path MTU of node 0" "$(path_mtu rxe0)" 4096
is "path MTU of node 1" "$(path_mtu rxe1)" 4096
check "node 0 reaches node 1" ping -q -c 1 -W 5 10.77.0.2
check "READs cross between the nodes" \
  over tcp_listens "ib_read_lat -d rxe1 -s 8 -n 100" ib_read_lat -d rxe0 -s 8 -n 100 10.77.0.2
# Not perftest with -R: on a busy machine its client has crashed twice inside librdmacm.
# rping compares (-V) what it moves.
check "so do READs and WRITEs on a connection that rdma_cm made" \
  over rdma_cm_listens "rping -s -a 10.77.0.2 -V -C 100" rping -c -a 10.77.0.2 -V -C 100
done_testing
