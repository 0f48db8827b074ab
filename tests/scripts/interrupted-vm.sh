#!/bin/bash
# scripts/vm that is ended leaves no emulator behind, also if it is about to boot a machine again.
# checks: 4
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
export VM_SLOWNESS=1
. "$ROOT/tests/vm/lib.sh"
set +e

SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
mkdir -p "$SCRATCH/scripts" "$SCRATCH/cache"
cp -r "$ROOT/scripts/lib" "$ROOT/scripts/vm" "$SCRATCH/scripts/"
touch "$SCRATCH/cache/setup.done"
echo 7.0-test >"$SCRATCH/cache/kernel.release"

# Its machines never come up. Their emulator takes a moment to start, and does nothing.
cat >>"$SCRATCH/scripts/lib/vm-scan.sh" <<'END'
ensure_images() { :; }
choose_accelerator() { ACCEL=(tcg); }
boot() {
  : >"$2/kernel.log"
  sleep 0.5
  sh -c 'echo $$ >>"$EMULATORS"; echo $$ >"$1/qemu.pid"; exec sleep 60' sh "$2"
}
END

export EMULATORS=$SCRATCH/emulators
# ended_when TEXT: the status of scripts/vm that is ended when it has said TEXT.
ended_when() {
  local vm tries
  WEFT_CACHE=$SCRATCH/cache WEFT_VM_BOOT_SECONDS=2 "$SCRATCH/scripts/vm" run --nodes 0 -- true >"$SCRATCH/out" 2>&1 &
  vm=$!
  for ((tries = 0; tries < 600; tries++)); do
    ! grep -qs "$1" "$SCRATCH/out" "$EMULATORS" || break
    sleep 0.02
  done
  kill "$vm"
  wait "$vm"
  echo $?
}
# none_runs: emulators were started, and all have ended. One that was about to start has by now.
none_runs() {
  local pid
  sleep 1
  [ -s "$EMULATORS" ] || return
  while read -r pid; do ! kill -0 "$pid" 2>/dev/null || return; done <"$EMULATORS"
}

is "it ends while a machine boots" "$(ended_when '^[0-9]')" 130
check "the emulator has ended" none_runs
rm "$EMULATORS"
is "it ends when a machine is booted again" "$(ended_when 'booted again')" 130
check "no emulator is left" none_runs
done_testing
