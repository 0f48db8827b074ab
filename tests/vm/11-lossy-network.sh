#!/bin/bash
# Data and messages on a network that loses, delays and reorders packets both ways.
# vm: --meta --nodes 2 --timeout 600
# checks: 26
. "$(dirname "$0")/lib.sh"

readonly NETEM="netem limit 100000 loss 2% delay 1ms reorder 10%"

check "netem is there" modprobe sch_netem
# shellcheck disable=SC2086
check "node 0's packets get lost" tc qdisc add dev v0 root $NETEM
# shellcheck disable=SC2086
check "so do node 1's" tc -n n1 qdisc add dev v1 root $NETEM
weft-check lossy || FAILURES=$((FAILURES + 1))
weft-check two-sided --lossy || FAILURES=$((FAILURES + 1))
tc qdisc del dev v0 root
tc -n n1 qdisc del dev v1 root
check "both nodes are published afterwards" within 60 all_published
done_testing
