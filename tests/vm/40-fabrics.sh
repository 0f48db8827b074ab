#!/bin/bash
# The fabrics over RDMA keep the promises of a fabric: the library's own suite,
# and processes on two nodes of which one is killed. And multicast over them
# delivers one sequence to all members, RDMC large messages whole.
# vm: --meta --nodes 2 --mem 2048 --timeout 900
. "$(dirname "$0")/lib.sh"

worker_gauges >/tmp/before
back_to_base() { [ "$(worker_gauges)" = "$(cat /tmp/before)" ]; }

# How words go by default depends on the processor, so both ways are tried; the
# suite has too many rounds for words one by one.
for kind in verbs weft; do
  weft-fabric suite "$kind" || FAILURES=$((FAILURES + 1))
done
for kind in verbs verbs-single weft weft-single; do
  weft-fabric processes "$kind" || FAILURES=$((FAILURES + 1))
done
for kind in verbs weft; do
  weft-fabric messages "$kind" --members 1,2,3,4 --messages 1000 || FAILURES=$((FAILURES + 1))
  weft-fabric rdmc "$kind" --members 3 --mib 6 --longest 1024 || FAILURES=$((FAILURES + 1))
done

# A file goes from one node to a receiver on each, and is the same there.
copy() {
  local nodes=10.77.0.1:7500,10.77.0.2:7500,10.77.0.1:7501 to=/tmp/copies rank
  mkdir -p $to/1 $to/2
  head -c 3000000 /dev/urandom >$to/file
  for rank in 1 2; do
    in_node $((rank % 2)) weft-cp receive $to/$rank --fabric weft --nodes $nodes --receivers 2 --rank $rank &
  done
  weft-cp send $to/file --fabric weft --nodes $nodes --receivers 2 && wait &&
    cmp $to/file $to/1/file && cmp $to/file $to/2/file
}
check "weft-cp copies a file to both nodes" copy
check "workers that ended left nothing" within 10 back_to_base
done_testing
