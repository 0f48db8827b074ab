#!/bin/bash
# The module is unloaded, and a node's RDMA device deleted, again and again while
# packets of every kind pour in: nothing is reported, nothing hangs, and each time all
# of it comes back. CYCLES is how often.
# vm: --no-module --nodes 3 --timeout 600
# checks: 9
. "$(dirname "$0")/lib.sh"

readonly CYCLES=${CYCLES:-3} META=10.77.0.1:7471

# soft-RoCE does not let a device go that weft-meta has open, so that it ends before.
start_meta() {
  weft-meta --listen "$META" >/tmp/meta.log 2>&1 &
  SERVER=$!
  within 20 grep -q '^weft-meta ready' /tmp/meta.log
}
stop_meta() {
  kill -KILL "$SERVER"
  wait "$SERVER" 2>/dev/null
  true
}

packets_come() { [ "$(counter packets_dropped)" -gt "$((PACKETS + 500 / VM_SLOWNESS))" ]; }
# Until the flood knows the new keys, it opens no contexts. A slow kernel gets fewer packets
# in the same time.
flooded() {
  PACKETS=$(counter packets_dropped)
  within 20 packets_come
}
moment() { sleep "0.$((RANDOM % 5))"; }
device_is_gone() { [ -d /sys/class/infiniband ] && [ ! -e /sys/class/infiniband/rxe1 ]; }

reload() { rmmod weft && insmod "$WEFT_KO" "meta=$META" && within 20 all_published && flooded && moment; }
delete_device() {
  start_meta && within 20 all_published && flooded && moment && stop_meta || return
  rdma link delete rxe1 && within 10 device_is_gone && moment || return
  ip netns exec n1 rdma link add rxe1 type rxe netdev v1
}

# cycles FUNCTION: says in which round it failed.
cycles() {
  local i
  for ((i = 1; i <= CYCLES; i++)); do
    "$1" || { echo "round $i of $1" "$(cat "$COUNTERS")"; return 1; }
  done
}

start_meta || not_ok "a meta server starts" "$(cat /tmp/meta.log)"
check "the module loads" insmod "$WEFT_KO" "meta=$META"
check "all nodes are published" within 20 all_published
weft-check worker flood >/tmp/flood.log 2>&1 &
flood=$!
check "packets pour in" flooded

cycles reload >/tmp/cycles 2>&1
is "unloaded and loaded under the flood" "$? $(cat /tmp/cycles)" "0 "
stop_meta
cycles delete_device >/tmp/cycles 2>&1
is "a device deleted under the flood" "$? $(cat /tmp/cycles)" "0 "
start_meta || not_ok "a meta server starts" "$(cat /tmp/meta.log)"
check "all nodes are published again" within 20 all_published
check "the flood went on" kill -0 "$flood"
kill -KILL "$flood"
wait "$flood" 2>/dev/null
check "data arrives as ever" weft-check data
stop_meta
check "the module unloads" rmmod weft
done_testing
