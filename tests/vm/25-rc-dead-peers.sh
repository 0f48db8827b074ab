#!/bin/bash
# Peers that are down, pinned or used with pool=rc, do not delay the queue pair of a
# peer that is up, and do not keep the module from being unloaded.
# vm: --meta --nodes 12 --mem 2048 --timeout 600
# checks: 10
. "$(dirname "$0")/lib.sh"

readonly KO=$WEFT_OUT/kmod/weft.ko META=10.77.0.1:7471

published() { [ "$(counter nodes_published)" = "$VM_NODES" ]; }

weft-check rc --dead || FAILURES=$((FAILURES + 1))
check "the module unloads" rmmod weft
check "it loads with RC for all" insmod "$KO" "meta=$META" pool=rc
check "all nodes are published" within 60 published
weft-check rc --dead --pool || FAILURES=$((FAILURES + 1))
done_testing
