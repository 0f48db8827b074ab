#!/bin/bash
# What an operator changes with weftctl while the module is in use: meta servers, and
# which peers have an RC queue pair. And what it says to what cannot be.
# vm: --nodes 2
# checks: 53
. "$(dirname "$0")/lib.sh"

readonly A=10.77.0.1:7471 B=10.77.0.1:7472
nobody_knows() { refuses 1 "no meta server is connected" weftctl lookup 10.77.0.2; }
links_are() { [ "$(counter meta_links)" = "$1" ]; }
published_twice() { [ "$(counter nodes_published)" = $((2 * VM_NODES)) ]; }
up() { [ "$(counter rc_queues)" = 2 ]; }
no_wants() { [ "$(counter rc_wants)" = 0 ]; }

# start ADDRESS
start() {
  weft-meta --listen "$1" >"/tmp/meta.$1" 2>&1 &
  within 10 grep -q '^weft-meta ready' "/tmp/meta.$1"
}
trap 'kill $(jobs -p) && wait' EXIT
check "a meta server runs" start $A
check "and another one" start $B

# given a module that was loaded without a meta server
check "then nobody is found" nobody_knows
check "weftctl lists none" says "no meta servers" weftctl meta list

# when one is added, then nodes publish and are found
check "a meta server is added" says "added meta server $A" weftctl meta add $A
check "nodes publish" within 30 all_published
check "and are found" says 10.77.0.2 weftctl lookup 10.77.0.2
check "it is listed" says 10.77.0.1 weftctl meta list
check "twice it is refused" refuses 1 "configured already" weftctl meta add $A
check "what is no address is wrong usage" refuses 2 "invalid value" weftctl meta add nonsense

# when another takes its place, then look-ups go on
check "another one is added" weftctl meta add $B
check "nodes publish at it too" within 30 published_twice
check "the first one is removed" says "removed meta server $A" weftctl meta remove $A
check "nodes are published at the other alone" within 30 all_published
check "and are found there" says 10.77.0.2 weftctl lookup 10.77.0.2
check "one that is not there is not removed" refuses 1 "not configured" weftctl meta remove $A

# when a peer is pinned, then requests go by RC; when it is unpinned, then it is not wanted any more
check "a peer is pinned" says "pinned node" weftctl pool pin 10.77.0.2
check "it has a queue pair" within 30 up
is "one peer is wanted" "$(counter rc_wants)" 1
chains=$(counter rc_chains)
weft-check data || FAILURES=$((FAILURES + 1))
check "requests go by it" test "$(counter rc_chains)" -gt "$chains"
check "the pool shows it" says "pin" weftctl pool
check "what cannot be written is told" refuses 1 "cannot be written" bash -c 'weftctl status >/dev/full'
check "a reader that has had enough is no failure" says "10.77.0.2" bash -o pipefail -c 'weftctl --json pool --watch | grep -m 1 10.77.0.2'
check "its requests are sent by DC" says "sent by DC" weftctl pool use 10.77.0.2 dc
check "the pool says who has chosen that" says '"chosen_by": "use"' weftctl --json pool
check "that is left to the pool again" says "left to the pool" weftctl pool use 10.77.0.2 auto
check "a way that there is not is refused" refuses 2 "invalid value" weftctl pool use 10.77.0.2 ud
check "the peer is unpinned" says "unpinned node" weftctl pool unpin 10.77.0.2
check "nobody is wanted then" within 10 no_wants
check "twice it is refused" refuses 1 "is not pinned" weftctl pool unpin 10.77.0.2
check "a node does not pin itself" refuses 1 "is this node itself" weftctl pool pin 10.77.0.1

# when all are removed, then nobody is found, and who is connected goes on
check "the other one is removed" weftctl meta remove $B
check "its links go" within 30 links_are 0
check "nobody is found any more" nobody_knows

# without the module
check "the module unloads" rmmod weft
check "then weftctl says that it is not loaded" refuses 3 "load weft.ko" weftctl status
done_testing
