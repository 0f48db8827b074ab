#!/bin/bash
# The data path's benchmark does what it says, with few samples: every case has a
# row for each system and transport with the fields that others read, and Weft's
# are compared with verbs'.
# vm: --meta --nodes 3 --mem 2048 --timeout 1500
# checks: 29
. "$(dirname "$0")/lib.sh"

readonly JSON=$VM_RUN/datapath.json

# rows PATTERN: how many results match.
rows() { grep -cE -- "$1" "$JSON"; }

take_base

check "READs and WRITEs, one at a time and in batches" \
  timeout "$(seconds 240)" weft-bench datapath --systems verbs,weft --samples 2 --clients 1 --ops read,write \
  --sizes 8,65536 --pause-us 0 --json "$JSON"
is "each case has a row for each system, transport and way to wait" "$(rows '"bench":"datapath"')" 32
is "a quarter of them are Weft's over DC" "$(rows '"system":"weft","transport":"dc"')" 8
is "a quarter are Weft's over RC" "$(rows '"system":"weft","transport":"rc"')" 8
is "verbs polls and sleeps" "$(rows '"system":"verbs".*"wait":"poll"') $(rows '"system":"verbs".*"wait":"event"')" "8 8"
is "all have rates" "$(rows '"ops_per_sec":[1-9].*"gb_per_s":[0-9]')" 32
is "single requests have latencies" "$(rows '"mode":"sync".*"lat_us_p50":[0-9].*"lat_us_p99":[0-9]')" 16
is "Weft's are compared" "$(rows '"system":"weft".*"rate_to_verbs":[0-9]')" 16
is "verbs' packets are as large as the ports allow" "$(rows '"system":"verbs".*"path_mtu":4096')" 16
release=$(uname -r | sed 's/[.+]/[&]/g')
is "all name where they come from" \
  "$(rows "\"kernel\":\"$release\",\"accel\":\"$VM_ACCEL\",\"cpus\":$(nproc),\"commit\":\"[^\"]+\",\"module_args\":\"meta=[^\"]*\",\"run\":\"[^\"]+\",\"quick\":false")" 32

check "messages and atomic operations, by several clients" \
  timeout "$(seconds 240)" weft-bench datapath --systems verbs,weft --samples 2 --clients 2 --ops send,cas,faa \
  --sizes 64 --pause-us 0 --json "$JSON"
is "messages have two rows of verbs and one of DC, atomic operations one of each transport" \
  "$(rows '"op":"send".*"clients":2') $(rows '"op":"(cas|faa)","mode":"[a-z]*","bytes":8,"clients":2.*')" "6 16"

check "a pause between requests, and perftest beside" \
  timeout "$(seconds 300)" weft-bench datapath --samples 30 --clients 1 --ops read,cas --sizes 4096 --modes sync --json "$JSON"
is "perftest has a row of each" "$(rows '"system":"perftest".*"path_mtu":4096.*"lat_us_p50":[0-9]')" 4
is "a tight loop and one with pauses are two cases" "$(rows '"pause_us":0,') $(rows '"pause_us":100,')" "10 10"
is "the others are compared with it" "$(rows '"lat_to_perftest":[0-9]')" 16
is "all name its version" "$(rows '"perftest":"[0-9]')" 20

check "batches, beside perftest's" \
  timeout "$(seconds 300)" weft-bench datapath --quick --samples 5 --clients 1 --ops read,write,send --sizes 4096 --modes async --json "$JSON"
is "perftest has a rate of each" "$(rows '"system":"perftest".*"lat_us_p50":null.*"ops_per_sec":[1-9]')" 3

check "ping-pongs, beside perftest's" \
  timeout "$(seconds 300)" weft-bench datapath --quick --samples 5 --clients 1,2 --ops write_pp,send_pp --sizes 8,4096 --json "$JSON"
is "WRITEs have a row of verbs, of DC, of RC and of perftest" "$(rows '"op":"write_pp".*"lat_us_p50":[0-9]')" 8
is "messages have one of verbs, of DC and of perftest" "$(rows '"op":"send_pp".*"lat_us_p50":[0-9]')" 6

check "the longest requests" timeout "$(seconds 120)" weft-bench datapath --systems verbs,weft --samples 1 --modes sync --ops write --sizes 4194304 --clients 2 --pause-us 0
check "DC alone" timeout "$(seconds 60)" weft-bench datapath --samples 1 --clients 1 --ops read --sizes 64 --systems weft --transports dc
check "a size that is too large is refused" refuses 2 "4194305" weft-bench datapath --sizes 4194305
check "so is a system without a data path" refuses 2 "invalid value 'ref'" weft-bench datapath --systems ref

ip -n n1 link set v1 mtu 1500 || exit
check "verbs between ports that differ" \
  timeout "$(seconds 120)" weft-bench datapath --systems verbs --samples 2 --clients 1 --ops read --sizes 65536 --pause-us 0 --json "$JSON"
is "packets are as large as the smaller one allows" "$(rows '"path_mtu":1024') $(rows '"path_mtu"')" "4 4"
ip -n n1 link set v1 mtu 9000 || exit
check "nothing is left behind" within 20 back_to_base
done_testing
