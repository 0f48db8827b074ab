#!/bin/bash
# Two machines on one network: each has nodes of its own, they find one another by the
# meta server of the first, and files go between them both ways. Runs in both.
# vm: --vms 2 --nodes 2 --meta --timeout 600
# checks: 9
. "$(dirname "$0")/lib.sh"

# The first machine sees the other one's folder inside its own.
readonly HERE=10.77.0.1 THERE=10.77.1.2 BYTES=3000000
readonly NODES=$HERE:7500,10.77.1.1:7500 BACK=10.77.1.1:7501,$HERE:7501

# receive RANK NODES DIR
receive() { weft-cp receive "$3" --fabric weft --nodes "$2" --receivers 1 --rank "$1"; }
send() { weft-cp send "$1" --fabric weft --nodes "$2" --receivers 1; }

if [ "$VM_INDEX" != 0 ]; then
  set -e
  mkdir -p /tmp/got "$VM_RUN/out"
  weftctl lookup $HERE >"$VM_RUN/out/lookup"
  receive 1 "$NODES" /tmp/got
  cp /tmp/got/file "$VM_RUN/out/file"
  send /tmp/got/file "$BACK"
  exit
fi

readonly OTHER=$VM_RUN/vm1/out
other_said() { grep -qF "$2" "$OTHER/$1"; }
same() { cmp "$1" "$2"; }

take_base
check "the first machine finds a node of the other" says $THERE weftctl lookup $THERE
check "which finds one of its" within 20 other_said lookup $HERE
is "the first machine has its own nodes only" "$(weftctl nodes | grep -cE '10\.77\.0\.[12]') $(weftctl nodes | grep -cE '10\.77\.1\.')" "2 0"
mkdir -p /tmp/file /tmp/back
head -c $BYTES /dev/urandom >/tmp/file/file
cached=$(counter connects_uncached)
check "a file goes to the other machine" send /tmp/file/file "$NODES"
check "over a connection that the meta server was asked for" test "$(counter connects_uncached)" -gt "$cached"
check "it comes back from there" receive 1 "$BACK" /tmp/back
check "the other machine has what was sent" same /tmp/file/file "$OTHER/file"
check "what comes back is the same" same /tmp/file/file /tmp/back/file
check "nothing is left behind" within 20 back_to_base
done_testing
