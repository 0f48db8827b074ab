#!/bin/bash
# A pool that decides by itself what carries the requests to a peer (pool=auto).
# vm: --meta --nodes 3 --mem 2048 --timeout 600
# checks: 17
. "$(dirname "$0")/lib.sh"

readonly KO=$WEFT_KO META=10.77.0.1:7471

check "the module unloads" rmmod weft
check "it refuses a pool that there is not" refuses 1 "Invalid" insmod "$KO" pool=ud
check "it loads with a pool that decides by itself" insmod "$KO" "meta=$META" pool=auto
check "all nodes are published" within 20 all_published
weft-check pool || FAILURES=$((FAILURES + 1))
done_testing
