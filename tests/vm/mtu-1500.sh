#!/bin/bash
# A network with Ethernet's own MTU: data and messages by DC, whose packets are shorter
# there, and by RC, whose path MTU is 1024.
# vm: --nodes 2 --meta --mtu 1500
# checks: 67
. "$(dirname "$0")/lib.sh"

# Bytes that soft-RoCE puts into a packet on this port.
path_mtu() { ibv_devinfo -d "$1" | awk '/active_mtu/ { print $2 }'; }
is_up() { [ "$(counter rc_queues)" = 2 ]; }

is "path MTU of both nodes" "$(path_mtu rxe0) $(path_mtu rxe1)" "1024 1024"
weft-check data || FAILURES=$((FAILURES + 1))
weft-check two-sided || FAILURES=$((FAILURES + 1))
check "a queue pair is asked for" weftctl pool pin 10.77.0.2
check "and is there" within 30 is_up
chains=$(counter rc_chains)
weft-check data || FAILURES=$((FAILURES + 1))
check "some of the data went by it" test "$(counter rc_chains)" -gt "$chains"
done_testing
