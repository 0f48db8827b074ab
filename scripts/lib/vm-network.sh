# Several machines on one network, and the order in which they start and end.
# Sourced after common.sh, by scripts/vm.

# Sets NETWORK, QEMU's arguments for machine $1. The first machine has a cable
# to each other one (a local socket, so that runs cannot meet); its bridge is
# the switch.
network() {
  local index=$1 i
  NETWORK=()
  [ "$OPT_VMS" -gt 1 ] || return 0
  # The path of a socket is short: not in the run's folder.
  [ -n "${SOCKETS:-}" ] || SOCKETS=$(mktemp -d)
  if [ "$index" -gt 0 ]; then
    cable 0 "off,reconnect-ms=200" "$index" "1:$index"
    return 0
  fi
  for ((i = 1; i < OPT_VMS; i++)); do cable "$i" on "$i" "0:$i"; done
}

# cable ID SERVER SOCKET MAC-END
cable() {
  NETWORK+=(-netdev "stream,id=net$1,server=$2,addr.type=unix,addr.path=$(q "$SOCKETS/$3")")
  NETWORK+=(-device "virtio-net-pci,netdev=net$1,host_mtu=9000,mac=52:54:00:77:0${4%:*}:0${4#*:}")
}

# Gives the machines their signals while process $1, the first machine, runs:
# the others go on when it is ready (it has the metadata server), it goes on
# when they are.
conduct() {
  local i
  wait_file "$1" "$RUN/ready" || return 0
  for ((i = 1; i < OPT_VMS; i++)); do : >"$RUN/vm$i/go"; done
  for ((i = 1; i < OPT_VMS; i++)); do
    wait_file "$1" "$RUN/vm$i/ready" "$RUN/vm$i/status" || return 0
  done
  : >"$RUN/go"
}

# wait_file PID FILE...: until one of them is there, or PID is not.
wait_file() {
  local pid=$1 f
  shift
  while kill -0 "$pid" 2>/dev/null; do
    for f in "$@"; do [ ! -e "$f" ] || return 0; done
    sleep 0.1
  done
  return 1
}

# Tells the other machines, processes $@, to go, and waits for them.
end_peers() {
  local i pid deadline=$((SECONDS + 30 * SLOWNESS))
  for ((i = 1; i < OPT_VMS; i++)); do : >"$RUN/vm$i/go" && : >"$RUN/vm$i/stop"; done
  for pid in "$@"; do
    while kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.1; done
  done
  end_machines
  wait "$@"
}
