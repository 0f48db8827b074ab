#!/bin/bash
# Four processors, each with streams and initiators of its own: data, messages, many
# workers at once, and workers that are killed.
# vm: --nodes 2 --meta --smp 4 --timeout 600
# checks: 74
. "$(dirname "$0")/lib.sh"

is "the machine has four processors" "$(nproc)" 4
for what in data two-sided killed-worker; do
  weft-check "$what" || FAILURES=$((FAILURES + 1))
done
done_testing
