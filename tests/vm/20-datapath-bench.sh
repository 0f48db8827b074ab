#!/bin/bash
# The data path's benchmark does what it says, with few samples: every case of
# both systems has a row with the fields that others read, and is compared.
# vm: --meta --nodes 2 --mem 2048
. "$(dirname "$0")/lib.sh"

readonly JSON=$VM_RUN/datapath.json OUT=$VM_RUN/datapath.out

# rows PATTERN: how many results match.
rows() { grep -cE -- "$1" "$JSON"; }

# refused ARG...: weft-bench answers with an error, at once.
refused() { ! timeout 10 weft-bench datapath "$@"; }

worker_gauges >/tmp/before
back_to_base() { [ "$(worker_gauges)" = "$(cat /tmp/before)" ]; }

check "READs and WRITEs, one at a time and in batches" \
  bash -c "timeout 60 weft-bench datapath --samples 2 --sizes 8,4096,65536 --json '$JSON' >'$OUT'"
is "each case has a row for each system" "$(rows '"bench":"datapath"')" 24
is "half of them are Weft's, over DC" "$(rows '"system":"weft","transport":"dc"')" 12
is "all have rates" "$(rows '"ops_per_sec":[1-9].*"gb_per_s":[0-9]')" 24
is "single requests have latencies" "$(rows '"mode":"sync".*"lat_us_p50":[0-9].*"lat_us_p99":[0-9]')" 12
is "each case is compared" "$(grep -c '^weft/verbs .* rate [0-9]' "$OUT")" 12

check "the longest requests, by several clients" \
  timeout 60 weft-bench datapath --samples 1 --modes sync --sizes 8,4194304 --clients 3 --json "$JSON"
is "have a row for each system, too" "$(rows '"clients":3')" 8
check "Weft alone" timeout 20 weft-bench datapath --samples 1 --sizes 64 --systems weft
check "a size that is too large is refused" refused --sizes 4194305
check "so is a system without a data path" refused --systems ref
check "nothing is left behind" within 10 back_to_base
done_testing
