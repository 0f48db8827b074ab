#!/bin/bash
# VQPs on RC queue pairs: what holds on DC holds there, peers that die are
# noticed, memory outlives its owner by a lease and no longer, and nothing is left.
# vm: --meta --nodes 3 --mem 2048 --timeout 600
. "$(dirname "$0")/lib.sh"

readonly KO=$WEFT_OUT/kmod/weft.ko META=10.77.0.1:7471

published() { [ "$(counter nodes_published)" = "$VM_NODES" ]; }
queues() { [ "$(counter rc_queues)" = "$1" ]; }
# one session and request to node 1, so that the two nodes connect
touch_peer() { weft-bench datapath --quick --samples 1 --sizes 8 --systems weft; }
at_base() { [ "$(counter mrs) $(counter pinned_pages) $(counter vqps)" = "0 0 0" ]; }
more() { [ "$2" -gt "$1" ]; }

check "the module unloads" rmmod weft
check "a pool that does not exist is refused" bash -c "! insmod '$KO' pool=x"
check "it loads with RC as its pool" insmod "$KO" "meta=$META" pool=rc
check "all nodes are published" within 20 published
is "nobody is connected by RC yet" "$(counter rc_queues)" 0

check "a peer is used" touch_peer
check "and both ends have a queue pair" within 20 queues 2
chains=$(counter rc_chains)
check "the data is right" weft-check data
check "and went by RC" more "$chains" "$(counter rc_chains)"
check "the peers' tables were read" more 0 "$(counter rc_mr_reads)"
is "no queue pair broke" "$(counter rc_lost)" 0
check "a lease holds memory for a moment only" within 5 at_base

check "a dead peer is noticed" weft-check peer-down
check "by both ends" more 1 "$(counter rc_lost)"
check "nothing is left of it" within 10 at_base

# when it is unloaded with queue pairs that are up, then they go
check "a peer is used again" touch_peer
check "the module unloads with queue pairs" rmmod weft
check "and loads" insmod "$KO" "meta=$META"
check "DC is the default" bash -c "$(declare -f touch_peer); touch_peer"
is "then there is no RC" "$(counter rc_queues)" 0
done_testing
