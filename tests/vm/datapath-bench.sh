#!/bin/bash
# The data path's benchmark does what it says, with few samples: every case has a
# row for each system and transport with the fields that others read, and Weft's
# are compared with verbs'.
# vm: --meta --nodes 3 --mem 2048
# checks: 14
. "$(dirname "$0")/lib.sh"

readonly JSON=$VM_RUN/datapath.json

# rows PATTERN: how many results match.
rows() { grep -cE -- "$1" "$JSON"; }

take_base

check "READs and WRITEs, one at a time and in batches" \
  timeout "$(seconds 90)" weft-bench datapath --samples 2 --clients 1 --ops read,write --sizes 8,65536 --json "$JSON"
is "each case has a row for each system and transport" "$(rows '"bench":"datapath"')" 24
is "a third of them are Weft's over DC" "$(rows '"system":"weft","transport":"dc"')" 8
is "a third are Weft's over RC" "$(rows '"system":"weft","transport":"rc"')" 8
is "all have rates" "$(rows '"ops_per_sec":[1-9].*"gb_per_s":[0-9]')" 24
is "single requests have latencies" "$(rows '"mode":"sync".*"lat_us_p50":[0-9].*"lat_us_p99":[0-9]')" 12
is "Weft's are compared" "$(rows '"system":"weft".*"rate_to_verbs":[0-9]')" 16

check "messages and atomic operations, by several clients" \
  timeout "$(seconds 90)" weft-bench datapath --samples 2 --clients 2 --ops send,faa --sizes 64 --json "$JSON"
is "messages have a row of verbs and one of DC, atomic operations one of each transport" \
  "$(rows '"op":"send".*"clients":2') $(rows '"op":"faa","mode":"[a-z]*","bytes":8,"clients":2.*')" "4 4"

check "the longest requests" timeout "$(seconds 60)" weft-bench datapath --samples 1 --modes sync --ops write --sizes 4194304 --clients 2
check "DC alone" timeout "$(seconds 20)" weft-bench datapath --samples 1 --clients 1 --ops read --sizes 64 --systems weft --transports dc
check "a size that is too large is refused" refuses 2 "4194305" weft-bench datapath --sizes 4194305
check "so is a system without a data path" refuses 1 "ref has no data path" weft-bench datapath --systems ref
check "nothing is left behind" within 20 back_to_base
done_testing
