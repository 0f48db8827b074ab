#!/bin/bash
# Messages whose packets go by RC (pool=rc): all that is promised of messages holds, and
# most of them did go that way.
# vm: --meta --nodes 2 --mem 2048 --timeout 600
# checks: 33
. "$(dirname "$0")/lib.sh"

most_went_by_rc() {
  local packets executed
  packets=$(counter rc_packets)
  executed=$(counter requests_executed)
  # A packet carries one request or several, or answers; nearly none goes by UDP.
  echo "$packets packets by RC, $executed requests"
  [ "$executed" -gt 1000 ] && [ "$packets" -gt $((executed / 2)) ]
}

check "the module unloads" rmmod weft
check "it loads with RC for all" insmod "$WEFT_KO" meta=10.77.0.1:7471 pool=rc
check "all nodes are published" within 20 all_published
weft-check two-sided || FAILURES=$((FAILURES + 1))
check "most messages went by RC" most_went_by_rc
done_testing
