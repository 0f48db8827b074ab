#!/bin/bash
# The benchmarks of messages, tails, registration, single costs, batches to many peers
# and multicast over RDMA run, and their results have the fields that others read. What
# they find is nobody's business here.
# vm: --meta-node 3 --nodes 4 --mem 2048
# checks: 22
. "$(dirname "$0")/lib.sh"

# bench NAME ARG...
bench() { timeout "$(seconds 90)" weft-bench "$@" --json "$VM_RUN/$1.json"; }

# rows NAME PATTERN: how many results match.
rows() { grep -cE -- "$2" "$VM_RUN/$1.json"; }

take_base

# Before anything makes an RC queue pair.
check "a tail" bench tail --clients 3 --servers 2 --samples 4
is "of each system, verbs polling and sleeping" \
  "$(rows tail '"servers":2.*"lat_us_p50":[0-9].*"lat_us_p99":[0-9].*"lat_us_p999":[0-9]') $(rows tail '"verbs".*"wait":"(poll|event)"')" "3 2"

check "echoes" bench two-sided --clients 2 --samples 20 --sizes 8,65536
is "by verbs with two kinds of client and of server, by Weft over RC, and over DC with and without copying" \
  "$(rows two-sided '"bytes":(8|65536).*"echo_us_p50":[0-9].*"echo_us_p99":[0-9].*"ops_per_sec":[1-9]')" 14
is "one lane of Weft's takes each message out of its buffer" "$(rows two-sided '"system":"weft".*"zero_copy":false')" 2
is "one has an RC queue pair carry its packets" "$(rows two-sided '"transport":"rc".*"rc_packets_per_echo":[1-9]')" 2

check "registration" bench mr --samples 4 --sizes 4096
is "of both systems" "$(rows mr '"case":"(de)?register".*"us_p50":[0-9]')" 4
is "a READ by a known key is not preceded by a look-up, one by a new key is, on RC alone" \
  "$(grep -cE '"transport":"rc","case":"read_new_key".*"table_reads_per_op":(0\.[5-9]|[1-9])' "$VM_RUN/mr.json") $(grep -cE '"transport":"dc".*"table_reads_per_op":0\.0' "$VM_RUN/mr.json")" "1 2"

check "factors" bench factors --samples 10
is "there are seven" "$(rows factors '"name":".*"us_p50":[0-9].*"packets_per_op":[0-9]')" 7
is "a READ over RC is one chain, one over DC one request" \
  "$(rows factors '"name":"weft_rc_read".*"rc_chains_per_op":1\.0') $(rows factors '"name":"weft_dc_read".*"dc_requests_per_op":1\.')" "1 1"

check "batches to many peers" bench fanout --peers 2 --handles 20 --batches 5 --samples 4
is "to queue pairs by both, to handles by Weft" \
  "$(rows fanout '"case":"connected".*"batch_us_p50":[0-9].*"batch_us_p99":[0-9]') $(rows fanout '"system":"weft","case":"unconnected".*"write_us_p50":[0-9]')" "14 3"
is "verbs polls and sleeps" "$(rows fanout '"verbs".*"wait":"poll"') $(rows fanout '"verbs".*"wait":"event"')" "4 4"
is "each has one to a single target beside" "$(rows fanout '"to_one_target":[0-9]')" 17
is "a batch by Weft is one system call" "$(rows fanout '"system":"weft".*"syscalls_per_batch":1\.0')" 9

check "multicast of large objects" bench rdmc --fabrics weft,verbs --experiments single --algorithms auto,sequential \
  --members 3 --sizes 16384,1048576 --samples 2 --rounds 1
is "over VQPs and verbs" "$(rows rdmc '"fabric":"weft".*"msgs_per_s":[1-9]') $(rows rdmc '"fabric":"verbs".*"msgs_per_s":[1-9]')" "4 4"
check "multicast of small ones" bench multicast --fabrics weft,verbs --experiments ladder --opts full \
  --members 2 --sizes 10240 --rounds 1
is "over both too" \
  "$(rows multicast '"ladder","fabric":"weft".*"msgs_per_s":[1-9]') $(rows multicast '"ladder","fabric":"verbs".*"msgs_per_s":[1-9]')" "1 1"
check "nothing is left behind" within 20 back_to_base
done_testing
