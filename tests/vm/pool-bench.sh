#!/bin/bash
# The benchmark of the hybrid pool runs, and its results have the fields that others read.
# What it finds is nobody's business here.
# vm: --nodes 5 --meta-node 4 --mem 2048 --timeout 900
# checks: 14
. "$(dirname "$0")/lib.sh"

# bench NAME ARG...: the results are in NAME.json.
bench() { timeout "$(seconds 400)" weft-bench pool --quick --json "$VM_RUN/$1.json" "${@:2}"; }

# rows PATTERN [NAME]: how many results match.
rows() { grep -cE -- "$1" "$VM_RUN/${2:-pool}.json"; }

# On soft-RoCE the pool decides nothing by itself unless it is told to.
export VM_MODULE_ARGS="$VM_MODULE_ARGS pool=auto"
load() {
  # shellcheck disable=SC2086
  rmmod weft && insmod "$WEFT_KO" $VM_MODULE_ARGS && within 20 all_published
}

nobody_is_forced() {
  local pool
  pool=$(weftctl --node 0 --json pool) && ! grep -q '"chosen_by": *"use"' <<<"$pool"
}

check "the module is loaded with a pool that decides by itself" load
check "the hybrid pool" bench pool --peers 2 --connections 60 --cases connections,pairs,opening,moves,delay
is "connections of all systems" \
  "$(rows '"case":"connections","system":"verbs","connections":60,') $(rows '"case":"connections","system":"weft","connections":60,') $(rows '"case":"connections","system":"weft_rc","connections":60,')" "1 1 1"
is "with all parts" \
  "$(rows '"case":"connections".*"call_us_p50":[0-9].*"first_write_us_p50":[0-9].*"per_sec":[0-9].*"writes_per_sec":[0-9].*"module_bytes":-?[0-9]')" 3
is "RC for all has a queue pair at both ends for each peer" "$(rows '"case":"connections","system":"weft_rc".*"rc_queues":4,')" 1
is "and for each pair of nodes" "$(rows '"case":"pairs","system":"weft_rc","connections":3,.*"rc_queues":6,')" 1
is "its rows name what the module was loaded with" "$(rows '"system":"weft_rc".*"module_args":"meta=[^"]* pool=rc"')" 2
is "requests while queue pairs are made" "$(rows '"case":"opening".*"lat_us_p50":[0-9].*"lat_us_p99":[0-9].*"opened":1')" 2
is "requests of a VQP that moves, and of one that does not" \
  "$(rows '"case":"moves".*"lat_us_p50":[0-9]') $(rows '"case":"moves".*"beside":"moving".*"moves":[1-9].*"move_p99_ratio":[0-9]')" "4 1"
is "what the pool does when DC is slow" "$(rows '"case":"delay".*"delay_us":300.*"equal_moves":[0-9].*"ops_per_sec":[0-9].*"verbs_ops_per_sec":[0-9]')" 1
check "READs while another peer is cut off" bench cut --peers 3 --cases cut --cut-steps opening,moving,closing
is "in each step, and the longest of them" \
  "$(rows '"case":"cut".*"beside":"(opening|moving|closing)".*"lat_us_max":[0-9].*"cuts":1,' cut) $(rows '"beside":"quiet".*"lat_us_max":[0-9]' cut)" "3 1"
is "the module is as it was before" "$(cat /sys/module/weft/parameters/pool)" auto
check "nobody's transport is forced any more" nobody_is_forced
done_testing
