#!/bin/bash
# The benchmarks of connections run: what one costs, what a new process pays, workers
# that connect to one another, what connections take of memory. Their results have the
# fields that others read. What they find is nobody's business here.
# vm: --nodes 4 --meta-node 3 --mem 2048 --timeout 600
# checks: 31
. "$(dirname "$0")/lib.sh"

# bench NAME ARG...
bench() { timeout "$(seconds 180)" weft-bench "$@" --json "$VM_RUN/$1.json"; }

# rows NAME PATTERN: how many results match.
rows() { grep -cE -- "$2" "$VM_RUN/$1.json"; }

take_base

check "connections" bench connect --samples 20 --clients 1,2 --peers 2
is "each case has a row, verbs' for each way to wait" \
  "$(rows connect '"bench":"connect"') $(rows connect '"verbs".*"wait":"event"')" "36 6"
is "a new process has all parts by verbs" \
  "$(rows connect '"verbs","case":"cold".*"open_us_p50":[0-9].*"register_us_p50":[0-9].*"create_us_p50":[0-9].*"call_us_p50":[0-9].*"first_write_us_p50":[0-9].*"total_us_p50":[0-9]')" 4
is "by Weft it opens, registers and makes queues in one, whether the node knows the peer or not" \
  "$(rows connect '"weft","case":"cold(_known)?".*"open_us_p50":[0-9].*"register_us_p50":null,"create_us_p50":null.*"call_us_p50":[0-9].*"first_write_us_p50":[0-9].*"total_us_p50":[0-9]')" 4
is "one that has the device open has the others; Weft makes and connects in one call" \
  "$(rows connect '"verbs","case":"warm".*"open_us_p50":null,"register_us_p50":null,"create_us_p50":[0-9].*"first_write_us_p50":[0-9].*"total_us_p50":[0-9]') $(rows connect '"weft","case":"warm".*"create_us_p50":null.*"first_write_us_p50":[0-9].*"total_us_p50":[0-9]')" "4 2"
is "5,000 are made in a row, beside as many null ioctls" \
  "$(rows connect '"case":"(null_)?in_a_row".*"clients":1,.*"samples":25000,.*"call_us_p50":[0-9].*"call_us_p99":[0-9]')" 2
is "so has one that knows the peer" "$(rows connect '"case":"(cached|same)".*"call_us_p50":[0-9].*"first_write_us_p50":[0-9].*"total_us_p50":[0-9]')" 8
is "calls alone have no sum" "$(rows connect '"case":"(uncached|call_[a-z]*|dc_read8|null_ioctl|read8|(null_)?in_a_row)".*"call_us_p50":[0-9].*"total_us_p50":null')" 14
is "the meta server is on a node of its own" "$(rows connect '"peers":2,"meta_server":"10.77.0.4:7471"')" 36
release=$(uname -r | sed 's/[.+]/[&]/g')
is "all name where they come from" \
  "$(rows connect "\"kernel\":\"$release\",\"accel\":\"$VM_ACCEL\",\"cpus\":$(nproc),\"commit\":\"[^\"]+\",\"module_args\":\"meta=[^\"]*\",\"run\":\"[^\"]+\",\"quick\":false")" 36
check "a peer on the meta server's node is refused" \
  refuses 1 "the meta server at 10.77.0.4:7471 is on the clients' node or a peer's" weft-bench connect --samples 1 --peers 3
check "one peer does not take turns" refuses 2 "1 is not in 2..=32" weft-bench connect --peers 1

check "new processes" bench worker --workers 1,4 --samples 4
is "each case has a row for each number at once" "$(rows worker '"case":"(cold|cached)"') $(rows worker '"system":"weft"')" "8 4"
is "all have sums" "$(rows worker '"start_us_p50":[0-9].*"total_us_p50":[0-9].*"total_us_p99":[0-9]')" 8
is "verbs polls and sleeps" "$(rows worker '"verbs".*"wait":"poll"') $(rows worker '"verbs".*"wait":"event"')" "2 2"
is "eleven rounds are the fewest" "$(rows worker '"workers":1,"samples":11,') $(rows worker '"workers":4,"samples":44,')" "4 4"

check "a mesh" bench mesh --workers 4 --rounds 2
is "of threads and of processes" "$(rows mesh '"workers":4,"processes":1,') $(rows mesh '"workers":4,"processes":4,')" "8 8"
is "warm and cached, by both" "$(rows mesh '"case":"warm"') $(rows mesh '"case":"cached"') $(rows mesh '"system":"verbs"')" "8 8 8"
is "verbs' workers poll and sleep" "$(rows mesh '"wait":"poll"') $(rows mesh '"wait":"event"')" "4 4"
is "each link has carried a WRITE" "$(rows mesh '"connections":12,"rounds":2,.*"total_us":[0-9].*"written_us":[0-9]')" 16
check "a mesh over three nodes" bench mesh --workers 9 --rounds 1 --run-as processes --systems weft --nodes 3

check "memory" bench memory --connections 60,120 --handles 200 --repeats 1 --peers 2
is "of both systems" "$(rows memory '"system":"verbs","case":"connected","connections":60,"wanted":60,') $(rows memory '"system":"weft","case":"connected","connections":120,"wanted":120,')" "1 1"
is "of handles too" "$(rows memory '"system":"weft","case":"handles","connections":200,"wanted":200,')" 1
is "each row has the kernel's memory, the processes', both, and what noise there was" \
  "$(rows memory '"module_bytes":-?[0-9].*"process_bytes":-?[0-9].*"total_bytes":-?[0-9].*"noise_bytes":[0-9]')" 5
if keeps_freed; then
  skip "connections take some" "KASAN keeps freed objects, as many as were made"
else
  is "connections take some" "$(rows memory '"case":"connected".*"module_bytes":[1-9]')" 4
fi
is "no limit was met" "$(rows memory '"limit"')" 0
check "ref holds nothing" refuses 2 "invalid value 'ref'" weft-bench memory --systems ref

check "nothing is left behind" within 20 back_to_base
done_testing
