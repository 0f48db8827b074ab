#!/bin/bash
# A machine that stands still before it is up is booted again; one that stands still
# afterwards is not, because it may be the module that holds it.
# checks: 4
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

# stops RUN FILE: stops the machine's processors as soon as FILE is in its folder.
stops() {
  local tries
  for ((tries = 0; tries < 1200; tries++)); do
    if [ -s "$1/qemu.pid" ] && [ -e "$1/$2" ]; then
      kill -STOP "$(cat "$1/qemu.pid")"
      return
    fi
    sleep 0.05
  done
}

export WEFT_VM_BOOT_SECONDS=12
stops "$SCRATCH/early" qemu.pid &
check "a machine that stops while it boots is booted again" machine "$SCRATCH/early" -- echo hello
wait $!
check "which is told" grep -q "booted again" "$SCRATCH/early.out"
is "and the command runs once" "$(grep -c '^hello' "$SCRATCH/early.out")" 1

stops "$SCRATCH/late" up &
machine "$SCRATCH/late" --timeout 15 -- sleep 60
is "one that stops when it is up is not: it is killed" "$? $(grep -c 'was killed after 15 s' "$SCRATCH/late.out")" "124 1"
done_testing
