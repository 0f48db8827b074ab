#!/bin/bash
# The benchmark of look-ups runs, with a meta server that takes a tool's records, and its
# result has the fields that others read. What it finds is nobody's business here.
# vm: --no-module --nodes 3
# checks: 7
. "$(dirname "$0")/lib.sh"

# On a node of its own, so that look-ups cross the network.
readonly META=10.77.0.3:7471 JSON=$VM_RUN/meta.json

ip netns exec n2 weft-meta --listen "$META" --registrar 10.77.0.1 >/tmp/meta.out 2>/tmp/meta.log &
server=$!
check "the server is ready" within 20 grep -q '^weft-meta ready' /tmp/meta.out
check "the module loads" insmod "$WEFT_KO" "meta=$META"
check "all nodes are published" within 20 all_published
check "look-ups" timeout "$(seconds 90)" weft-bench meta --records 200 --lookups 300 --json "$JSON"
check "their times, READs and the server's time are told" grep -E \
  '"bench":"meta".*"lookups":300.*"records":200.*"capacity":[1-9].*"reads_per_lookup":[1-9].*"lookup_us_p50":[0-9].*"lookup_us_p99":[0-9].*"server_cpu_us_per_lookup":[0-9]' \
  "$JSON"
check "a server that is none is refused" refuses 1 "that is bash, not weft-meta" weft-bench meta --server-pid $$
check "the module unloads" rmmod weft
kill "$server"
wait "$server"
done_testing
