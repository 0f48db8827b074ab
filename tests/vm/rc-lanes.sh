#!/bin/bash
# RC queue pairs of their own for the processors of a node (rc_lanes=2), and what holds of RC
# with one holds with several; how queue pairs begin and end.
# vm: --meta --nodes 3 --mem 2048 --timeout 900
# checks: 20
. "$(dirname "$0")/lib.sh"

readonly KO=$WEFT_KO META=10.77.0.1:7471

check "the module unloads" rmmod weft
check "it refuses more queue pairs than there can be" refuses 1 "Invalid" insmod "$KO" rc_lanes=9
check "it loads with two for each peer" insmod "$KO" "meta=$META" rc_lanes=2
check "all nodes are published" within 20 all_published
weft-check lanes || FAILURES=$((FAILURES + 1))
weft-check moves --moves 60 || FAILURES=$((FAILURES + 1))
done_testing
