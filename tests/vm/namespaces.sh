#!/bin/bash
# What becomes of a node when addresses come and go beside its own, when somebody else
# has its UDP port, and when its network namespace is left by everybody.
# vm: --meta --nodes 3
# checks: 32
. "$(dirname "$0")/lib.sh"

readonly UDP_PORT=4793
# Seconds after which the kernel tells of a device that it waits for.
readonly TOLD_AFTER=3

nodes_are() { [ "$(counter nodes)" = "$1" ]; }
published_are() { [ "$(counter nodes_published)" = "$1" ]; }
knows() { [ -n "$(incarnation "$1")" ]; }
incarnation() { weftctl lookup "$1" 2>/dev/null | grep -io 'incarnation[^,]*' | head -n 1; }
messages() { dmesg | grep -c "$1"; }
gone() { [ ! -e "/sys/class/infiniband/$1" ]; }
is_up() { nodes_are "$1" && published_are "$1"; }
# waits_told: how often the kernel has told of a device, after it had the time to.
waits_told() {
  sleep "$(seconds $((TOLD_AFTER + 2)))"
  messages 'waiting for .* to become free'
}

check "the kernel tells soon of a device that it waits for" \
  sysctl -qw "net.core.netdev_unregister_timeout_secs=$(seconds $TOLD_AFTER)"

# given a node whose address has not the lowest index: a first one that went
check "a second address comes" ip -n n1 address add 10.77.0.102/24 dev v1
check "it may outlive the first" in_node 1 sysctl -qw net.ipv4.conf.v1.promote_secondaries=1
check "the first one goes" ip -n n1 address del 10.77.0.2/24 dev v1
check "the node has the other address then" within 10 knows 10.77.0.102
before=$(incarnation 10.77.0.102)

# when an address takes the lower index, then the node stays
check "an address comes that takes the lower index" ip -n n1 address add 10.77.0.2/24 dev v1
sleep 3
is "the node is the same" "$(incarnation 10.77.0.102)" "$before"
check "it goes with its own address" ip -n n1 address del 10.77.0.102/24 dev v1
check "and comes up with the one that is left" within 10 knows 10.77.0.2

# when a foreign socket has the node's port, then that is told once, and the node comes up later
ip -n n2 address del 10.77.0.3/24 dev v2
check "a node goes" within 10 nodes_are 2
ip netns exec n2 python3 -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', $UDP_PORT))
time.sleep(1000)" &
squatter=$!
check "somebody else takes its port" within 30 in_node 2 grep -q ':12B9 ' /proc/net/udp
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
is "no device was waited for" "$(waits_told)" 0

# when one is left while its node, connected to nobody, tries servers that do not answer,
# then it gives up, and begins no further connection in a namespace that has begun to go
# (the kernel would warn of that, which ends this machine)
readonly SERVER=10.77.0.1:7471
links_are() { [ "$(counter meta_links)" = "$1" ]; }
resolves() { ip -n n1 neighbour show "$1" 2>/dev/null | grep -q INCOMPLETE; }
check "the meta server is no longer used" weftctl meta remove $SERVER
check "nobody is connected to it" within 20 links_are 0
for silent in 10.77.0.91 10.77.0.92 10.77.0.93; do
  check "$silent becomes a meta server, where nobody is" weftctl meta add "$silent:7471"
done
check "a node tries to reach the first" within 20 resolves 10.77.0.91
check "its namespace is left meanwhile" ip netns del n1
check "its node goes too" within 30 nodes_are 1
check "its device goes too" within 30 gone rxe1
is "none of its devices was waited for" "$(waits_told)" 0
check "one of them is no longer a meta server" weftctl meta remove 10.77.0.91:7471
check "node 0 finds it" eval "weftctl meta add $SERVER && within 60 weftctl lookup 10.77.0.1"
done_testing
