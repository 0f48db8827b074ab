#!/bin/bash
# udp_port= moves the nodes to another UDP port, which their records name: peers connect
# to that one.
# vm: --no-module --nodes 2 --meta
# checks: 28
. "$(dirname "$0")/lib.sh"

readonly KO=$WEFT_KO META=10.77.0.1:7471 PORT=5001 USUAL=4793

# listens NODE PORT: whether somebody has this UDP port there.
listens() { in_node "$1" grep -qi "$(printf ':%04X 0' "$2")" /proc/net/udp; }
nobody_listens() { [ -r /proc/net/udp ] && ! listens "$1" "$2"; }

check "a port that is none is refused" refuses 1 "insmod" insmod "$KO" "meta=$META" udp_port=65536
check "which loads nothing" test ! -e /sys/module/weft
check "the module loads with another port" insmod "$KO" "meta=$META" udp_port=$PORT
check "all nodes are published" within 20 all_published
for node in 0 1; do
  check "node $node listens there" listens $node $PORT
  check "and not at the usual port" nobody_listens $node $USUAL
done
is "weftctl shows the port" "$(weftctl --json nodes | grep -c "\"udp_port\": *$PORT")" 2
is "its peers find it in the record" "$(weft-probe target 10.77.0.2 | cut -d' ' -f4)" $PORT
weft-check data || FAILURES=$((FAILURES + 1))
check "the module unloads" rmmod weft
done_testing
