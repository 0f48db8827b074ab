#!/bin/bash
# The fabrics over RDMA keep the promises of a fabric: the library's own suite,
# and processes on two nodes of which one is killed. And multicast over them
# delivers one sequence to all members, also of a group whose members are killed and
# that others join, and RDMC large messages whole, also from one view of such a group to the next.
# vm: --meta --nodes 2 --mem 2048 --timeout 900
# checks: 63
. "$(dirname "$0")/lib.sh"

take_base

# How words go by default depends on the processor, so both ways are tried; the
# suite has too many rounds for words one by one.
for kind in verbs verbs-inline64 weft; do
  weft-fabric suite "$kind" || FAILURES=$((FAILURES + 1))
done
for kind in verbs verbs-single verbs-inline64 verbs-inline-all weft weft-single; do
  weft-fabric processes "$kind" || FAILURES=$((FAILURES + 1))
done
for kind in verbs weft; do
  weft-fabric messages "$kind" --members 1,2,3,4 --messages 1000 || FAILURES=$((FAILURES + 1))
  weft-fabric rdmc "$kind" --members 3 --mib 6 --longest 1024 || FAILURES=$((FAILURES + 1))
done

for kind in verbs weft; do
  weft-fabric elastic "$kind" --changes 5 --shrinking 1 --stops 1 || FAILURES=$((FAILURES + 1))
done
for kind in verbs weft; do
  weft-fabric bulk "$kind" --changes 5 || FAILURES=$((FAILURES + 1))
done
# By verbs soft-RoCE has no time-out, and when TCP has one both nodes know.
weft-fabric severed weft || FAILURES=$((FAILURES + 1))

# copy FABRIC: a file goes from one node to a receiver on each, and is the same there.
copy() {
  local fabric=$1 to=/tmp/copies-$1 rank receivers=()
  local nodes=(--nodes "10.77.0.1:7500,10.77.0.2:7500,10.77.0.1:7501" --receivers 2)
  mkdir -p "$to/1" "$to/2"
  head -c 3000000 /dev/urandom >"$to/file"
  for rank in 1 2; do
    in_node $((rank % 2)) weft-cp receive "$to/$rank" --fabric "$fabric" "${nodes[@]}" --rank "$rank" &
    receivers+=($!)
  done
  weft-cp send "$to/file" --fabric "$fabric" "${nodes[@]}" || { kill "${receivers[@]}"; return 1; }
  wait "${receivers[0]}" && wait "${receivers[1]}" && cmp "$to/file" "$to/1/file" && cmp "$to/file" "$to/2/file"
}
check "weft-cp copies a file to both nodes" copy weft
check "and by verbs" copy verbs

# copy_elastic FABRIC: a receiver on each node comes when it likes.
copy_elastic() {
  local fabric=$1 to=/tmp/late-$1 node sender receivers=()
  mkdir -p "$to/0" "$to/1"
  head -c 1000000 /dev/urandom >"$to/file"
  weft-cp send "$to/file" --fabric "$fabric" --elastic 10.77.0.1:7600 --timeout "$(seconds 10)" &
  sender=$!
  for node in 0 1; do
    in_node "$node" weft-cp receive "$to/$node" --fabric "$fabric" --elastic 10.77.0.1:7600 &
    receivers+=($!)
  done
  wait "${receivers[0]}" && wait "${receivers[1]}" && cmp "$to/file" "$to/0/file" && cmp "$to/file" "$to/1/file" && wait "$sender"
}
check "receivers come when they like" copy_elastic weft
check "workers that ended left nothing" within 10 back_to_base
done_testing
