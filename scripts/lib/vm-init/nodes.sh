# The nodes of a VM: node 0 in the guest's own network namespace, node k in
# namespace nk, each with a network device vk, an address and a soft-RoCE
# device rxek. Two nodes hang on one cable; more, or several machines, on a
# bridge that has a namespace of its own ("fabric").

# It has to be there before rxe is, which takes its path MTU from it.
readonly NODE_MTU=$VM_MTU

node_address() { echo "10.77.$VM_INDEX.$(($1 + 1))"; }
in_node() {
  local k=$1
  shift
  if [ "$k" = 0 ]; then "$@"; else ip netns exec "n$k" "$@"; fi
}

make_nodes() {
  local k
  [ "$VM_NODES" -gt 0 ] || return 0
  ip link set lo up
  for ((k = 1; k < VM_NODES; k++)); do ip netns add "n$k" || return; done
  if [ "$VM_NODES" = 2 ] && [ "$VM_MACHINES" = 1 ]; then lay_cable; else lay_bridge; fi || return
  for ((k = 0; k < VM_NODES; k++)); do make_node "$k" || return; done
  for ((k = 0; k < VM_NODES; k++)); do wait_gid "$k" || return; done
}

lay_cable() { ip link add v0 mtu "$NODE_MTU" type veth peer name v1 mtu "$NODE_MTU" netns n1; }

lay_bridge() {
  local k nic
  ip netns add fabric || return
  {
    echo "link add br0 mtu $NODE_MTU type bridge stp_state 0 mcast_snooping 0"
    echo "link set br0 up"
    for ((k = 0; k < VM_NODES; k++)); do
      echo "link add p$k mtu $NODE_MTU type veth peer name v$k mtu $NODE_MTU"
      echo "link set p$k up master br0"
    done
  } | ip -n fabric -batch - || return
  ip -n fabric link set v0 netns 1 || return
  for ((k = 1; k < VM_NODES; k++)); do ip -n fabric link set "v$k" netns "n$k" || return; done
  # The cables to the other machines.
  for nic in /sys/class/net/e*; do
    [ -e "$nic/device" ] || continue
    nic=${nic##*/}
    ip link set "$nic" mtu "$NODE_MTU" netns fabric || return
    ip -n fabric link set "$nic" up master br0 || return
  done
}

make_node() {
  local k=$1 bits=24
  [ "$VM_MACHINES" = 1 ] || bits=16
  in_node "$k" ip -batch - <<END || return
link set lo up
address add $(node_address "$k")/$bits dev v$k
link set v$k up
END
  in_node "$k" rdma link add "rxe$k" type rxe netdev "v$k"
}

# The GID that maps the node's IPv4 address shows up some time after the
# address, and at no fixed index.
wait_gid() {
  local k=$1 port=/sys/class/infiniband/rxe$1/ports/1 want tries g
  want=$(printf '0000:0000:0000:0000:0000:ffff:0a4d:%02x%02x' "$VM_INDEX" $((k + 1)))
  for ((tries = 0; tries < 200 * VM_SLOWNESS; tries++)); do
    for g in "$port"/gids/*; do
      [ "$(<"$g")" = "$want" ] || continue
      [ "$(<"$port/gid_attrs/types/${g##*/}")" = "RoCE v2" ] && return 0
    done 2>/dev/null
    sleep 0.05
  done
  say "rxe$k has no GID for $(node_address "$k") after $((10 * VM_SLOWNESS)) s"
  return 1
}
