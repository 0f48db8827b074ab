#!/bin/bash
# A machine that stands still before it is up is booted again; one that stands still
# afterwards is not, because it may be the module that holds it. An emulator that crashes is told
# from a machine that fails.
# checks: 5
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
export VM_SLOWNESS=1
. "$ROOT/tests/vm/lib.sh"
. "$ROOT/scripts/lib/common.sh"
set +e

SCRATCH=$WEFT_OUT/test/boot-again-$$
trap 'rm -rf "$SCRATCH"' EXIT
mkdir -p "$SCRATCH"

# machine RUN OPTION...: one without module and nodes.
machine() {
  local run=$1
  shift
  "$ROOT/scripts/vm" run --run-dir "$run" --no-module --nodes 0 "$@" >"$run.out" 2>&1
}

# sends SIGNAL RUN FILE: to the machine's emulator, as soon as FILE is in the run's folder.
# Fails if it never is.
sends() {
  local tries
  for ((tries = 0; tries < 1200; tries++)); do
    if [ -s "$2/qemu.pid" ] && [ -e "$2/$3" ]; then
      kill -"$1" "$(cat "$2/qemu.pid")"
      return
    fi
    sleep 0.05
  done
  return 1
}

sends STOP "$SCRATCH/early" qemu.pid &
WEFT_VM_BOOT_SECONDS=12 check "a machine that stops while it boots is booted again" machine "$SCRATCH/early" -- echo hello
wait $!
check "which is told" grep -q "booted again" "$SCRATCH/early.out"
is "and the command runs once" "$(grep -c '^hello' "$SCRATCH/early.out")" 1

# It would end well before it is killed if nobody stopped it.
sends STOP "$SCRATCH/late" up &
sender=$!
machine "$SCRATCH/late" --timeout 60 -- sleep 10
status=$?
wait $sender
is "one that stops when it is up is not: it is killed" \
  "$? $status $(grep -c 'was killed after 60 s' "$SCRATCH/late.out") $(grep -c 'booted again' "$SCRATCH/late.out")" "0 124 1 0"

sends ABRT "$SCRATCH/crash" up &
machine "$SCRATCH/crash" -- sleep 60
is "of an emulator that crashes the status says that it was the emulator" "$? $(grep -c 'QEMU crashed' "$SCRATCH/crash.out")" "89 1"
done_testing
