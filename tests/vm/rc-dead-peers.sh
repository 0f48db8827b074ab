#!/bin/bash
# Peers that are down, pinned or used with pool=rc, do not delay the queue pair of a
# peer that is up, however many they are, and do not keep the module from being unloaded.
# vm: --meta --nodes 15 --mem 2048 --timeout 900
# checks: 16
. "$(dirname "$0")/lib.sh"

# A second meta server, which takes records of nodes that are not there from node 0.
readonly KO=$WEFT_KO META=10.77.0.1:7472

ready() { grep -q '^weft-meta ready' "$VM_RUN/second-meta.log"; }
publish_nobodys() {
  local k
  for ((k = 100; k < 180; k++)); do weft-probe --server "$META" publish "10.77.0.$k" "$k" || return; done
}
published() { [ "$(counter nodes_published)" = "$VM_NODES" ]; }

weft-check rc --dead || FAILURES=$((FAILURES + 1))
check "the module unloads" rmmod weft
weft-meta --listen "$META" --registrar 10.77.0.1 >"$VM_RUN/second-meta.log" 2>&1 &
readonly SERVER=$!
check "a second meta server starts" within 20 ready
check "it takes records of nodes that are not there" publish_nobodys
check "it loads with RC for all" insmod "$KO" "meta=$META" pool=rc
check "all nodes are published" within 60 published
weft-check rc --dead --pool || FAILURES=$((FAILURES + 1))
check "the module unloads" rmmod weft
kill "$SERVER"
wait "$SERVER"
done_testing
