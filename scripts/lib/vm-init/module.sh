# weft.ko and weft-meta inside the guest: start, wait until they are of use,
# stop.

META_ADDRESS=10.77.0.$((VM_META_NODE + 1)):7471
readonly META_ADDRESS
readonly COUNTERS=/sys/kernel/debug/weft/counters

start_meta() {
  local program=$WEFT_OUT/target/release/weft-meta tries on_node=()
  [ -x "$program" ] || { say "$program is missing: run scripts/build"; return 1; }
  # It becomes the program: this is the process that is told to stop.
  [ "$VM_META_NODE" = 0 ] || on_node=(ip netns exec "n$VM_META_NODE")
  # shellcheck disable=SC2086
  "${on_node[@]}" "$program" --listen "$META_ADDRESS" $VM_META_ARGS >"$VM_RUN/weft-meta.log" 2>&1 </dev/null &
  META_PID=$!
  export VM_META_PID=$META_PID
  for ((tries = 0; tries < 200 * VM_SLOWNESS; tries++)); do
    grep -q '^weft-meta ready' "$VM_RUN/weft-meta.log" && return 0
    kill -0 "$META_PID" 2>/dev/null || break
    sleep 0.05
  done
  cat "$VM_RUN/weft-meta.log" >&2
  return 1
}

stop_meta() {
  local status=0
  kill -TERM "$META_PID"
  wait "$META_PID" || status=$?
  [ "$status" = 0 ] && return 0
  say "weft-meta ended with status $status:"
  tail -n 20 "$VM_RUN/weft-meta.log" >&2
  return 1
}

load_module() {
  local arguments=()
  [ -e "$WEFT_KO" ] || { say "$WEFT_KO is missing: run scripts/build${VM_KERNEL:+ --kernel $VM_KERNEL}"; return 1; }
  [ -z "$VM_META" ] || arguments+=("meta=$META_ADDRESS")
  # shellcheck disable=SC2206
  arguments+=($VM_MODULE_ARGS)
  # Results name what the module was loaded with.
  export VM_MODULE_ARGS="${arguments[*]}"
  insmod "$WEFT_KO" "${arguments[@]}"
}

# The command may have unloaded the module itself.
unload_module() {
  [ -d /sys/module/weft ] || return 0
  rmmod weft
}

counter() { awk -v name="$1" '$1 == name { print $2 }' "$COUNTERS" 2>/dev/null; }

wait_published() {
  local deadline=$((SECONDS + 20 * VM_SLOWNESS))
  while [ "$SECONDS" -lt "$deadline" ]; do
    [ "$(counter nodes_published)" != "$VM_NODES" ] || return 0
    sleep 0.05
  done
  say "only $(counter nodes_published) of $VM_NODES nodes were published to weft-meta after $((20 * VM_SLOWNESS)) s"
  [ ! -e "$COUNTERS" ] || cat "$COUNTERS" >&2
  tail -n 5 "$VM_RUN/weft-meta.log" >&2
  return 1
}
