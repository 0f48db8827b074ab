#!/bin/bash
# A module that takes RC for every peer (pool=rc); loading and unloading with
# queue pairs up.
# vm: --meta --nodes 3 --mem 2048 --timeout 600
# checks: 20
. "$(dirname "$0")/lib.sh"

readonly KO=$WEFT_KO META=10.77.0.1:7471
readonly ROUNDS=5

connected() { [ "$(counter rc_queues)" -ge 2 ]; }

# Loads the module, connects two nodes, and unloads it.
cycle() {
  insmod "$KO" "meta=$META" && within 20 all_published && weftctl --node 0 pool pin 10.77.0.2 && within 20 connected &&
    rmmod weft
}
cycles() {
  local i
  for ((i = 0; i < ROUNDS; i++)); do cycle || { echo "round $i"; return 1; }; done
}

check "the module unloads" rmmod weft
check "$ROUNDS times with RC up, at once" cycles
check "it loads with RC for all" insmod "$KO" "meta=$META" pool=rc
check "all nodes are published" within 20 all_published
weft-check rc --pool || FAILURES=$((FAILURES + 1))
done_testing
