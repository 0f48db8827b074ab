#!/bin/bash
# scripts/vm with a shell function in its emulators' place: the first thing that went wrong gives
# the status of a run; and one that is ended leaves no emulator behind, also if it is about to boot
# a machine again.
# checks: 16
. "$(dirname "$0")/lib/scratch.sh"

scratch_with vm
echo 7.0-test >"$SCRATCH/cache/kernel.release"
cat >>"$SCRATCH/scripts/lib/vm-scan.sh" <<'END'
ensure_images() { :; }
choose_accelerator() { ACCEL=(tcg); }
boot() {
  [ -n "${NO_LOG:-}" ] || : >"$2/kernel.log"
  emulator "$2" "$3"
}
END
export WEFT_CACHE=$SCRATCH/cache

# vm OPTION...: scripts/vm with the function `emulator RUN INDEX` in an emulator's place.
vm() { "$SCRATCH/scripts/vm" run --nodes 0 "$@" -- true >"$SCRATCH/out" 2>&1; }

# status_of BODY [OPTION...]: of a run whose emulators do that. RUN is $1, and $2 the machine.
status_of() {
  eval "emulator() { $1; }"
  export -f emulator
  shift
  vm "$@"
  echo $?
}
is "a command that ended well is a good end" "$(status_of 'echo 0 >"$1/status"')" 0
is "one that failed gives its status" "$(status_of 'echo 3 >"$1/status"')" 3
is "without one the machine has failed" "$(status_of true)" 85
is "so has one whose emulator does not start" "$(NO_LOG=1 status_of 'return 1')" 85
is "an emulator that crashes counts before that" "$(status_of 'return 139')" 89
is "and before what its machine has answered" "$(status_of 'echo 3 >"$1/status"; return 134')" 89
is "so does one that takes too long" "$(status_of 'echo 3 >"$1/status"; return 124')" 124
is "a bug of the kernel counts before all" "$(status_of 'echo "WARNING: x" >"$1/kernel.log"; echo 3 >"$1/status"; return 124')" 86
readonly PEER='if [ "$2" = 1 ]; then echo 4 >"$1/status"; else echo "$FIRST" >"$1/status"; fi'
export FIRST=0
is "another machine that failed counts if the first did not" "$(status_of "$PEER" --vms 2)" 4
FIRST=3
is "and no more if it did" "$(status_of "$PEER" --vms 2)" 3
is "another kernel's bug counts before all" \
  "$(status_of "$PEER"'; [ "$2" = 0 ] || echo "WARNING: x" >"$1/kernel.log"' --vms 2)" 86

# given an emulator that stands still before it has opened its log, and works when it starts again
readonly STUCK='if [ -e "$1/kernel.log.1" ]; then echo 0 >"$1/status"; else sh -c "echo \$\$ >$1/qemu.pid; exec sleep 60"; fi'
is "a machine without a log is booted again" "$(NO_LOG=1 WEFT_VM_BOOT_SECONDS=1 status_of "$STUCK")" 0

# given machines that never come up, whose emulator takes a moment to start, and does nothing
export EMULATORS=$SCRATCH/emulators
emulator() {
  sleep 0.5
  sh -c 'echo $$ >>"$EMULATORS"; echo $$ >"$1/qemu.pid"; exec sleep 60' sh "$1"
}
export -f emulator
# ended_when TEXT: the status of a run that is ended when it has said TEXT, or an emulator has; or
# `never said`.
ended_when() {
  local run tries status said=''
  WEFT_VM_BOOT_SECONDS=2 "$SCRATCH/scripts/vm" run --nodes 0 -- true >"$SCRATCH/out" 2>&1 &
  run=$!
  for ((tries = 0; tries < 600; tries++)); do
    if grep -qs "$1" "$SCRATCH/out" "$EMULATORS"; then said=yes; break; fi
    sleep 0.02
  done
  kill "$run"
  wait "$run"
  status=$?
  if [ -n "$said" ]; then echo "$status"; else echo "never said"; fi
}
# none_runs: emulators were started, and all have ended. One that was about to start has by now.
none_runs() {
  local pid
  sleep 1
  [ -s "$EMULATORS" ] || return
  while read -r pid; do ! kill -0 "$pid" 2>/dev/null || return; done <"$EMULATORS"
}

is "a run ends while its machine boots" "$(ended_when '^[0-9]')" 130
check "the emulator has ended" none_runs
rm "$EMULATORS"
is "a run ends when its machine is booted again" "$(ended_when 'booted again')" 130
check "no emulator is left" none_runs
done_testing
