#!/bin/bash
# What becomes of a node when addresses come and go beside its own, when somebody else
# has its UDP port, and when its network namespace is left by everybody.
# vm: --meta --nodes 3
. "$(dirname "$0")/lib.sh"

readonly UDP_PORT=4793

nodes_are() { [ "$(counter nodes)" = "$1" ]; }
published_are() { [ "$(counter nodes_published)" = "$1" ]; }
dct_number() { weftctl lookup "$1" | grep -o 'dct[^,]*' | head -n 1; }
messages() { dmesg | grep -c "$1"; }
gone() { [ ! -e "/sys/class/infiniband/$1" ]; }
is_up() { nodes_are "$1" && published_are "$1"; }

# given a node whose address has not the lowest index: a first one that went
check "a second address comes" ip -n n1 address add 10.77.1.2/24 dev v1
check "the first one goes" ip -n n1 address del 10.77.0.2/24 dev v1
check "the node has the other address then" within 10 weftctl lookup 10.77.1.2
before=$(dct_number 10.77.1.2)

# when an address takes the lower index, then the node stays
check "an address comes that takes the lower index" ip -n n1 address add 10.77.0.2/24 dev v1
sleep 3
is "the node is the same" "$(dct_number 10.77.1.2)" "$before"
check "it goes with its own address" ip -n n1 address del 10.77.1.2/24 dev v1
check "and comes up with the one that is left" within 10 weftctl lookup 10.77.0.2

# when a foreign socket has the node's port, then that is told once, and the node comes up later
ip -n n2 address del 10.77.0.3/24 dev v2
check "a node goes" within 10 nodes_are 2
ip netns exec n2 python3 -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', $UDP_PORT))
time.sleep(1000)" &
squatter=$!
sleep 1
ip -n n2 address add 10.77.0.3/24 dev v2
check "the node cannot start" within 10 eval '[ "$(messages "cannot start a node")" -gt 0 ]'
sleep 5
is "that is told once" "$(messages 'cannot start a node')" 1
is "and it is down" "$(counter nodes)" 2
kill $squatter
check "it comes up when the port is free" within 15 is_up 3

# when a namespace is left by everybody, then its node lets it go, links to meta servers or not
check "a namespace is left" ip netns del n2
check "its node goes" within 15 nodes_are 2
check "its device goes" within 20 gone rxe2
check "the others stay" is_up 2
is "no device was waited for" "$(messages 'waiting for .* to become free')" 0
done_testing
