# Boots a virtual machine and waits for it to end.
# Sourced after common.sh. The options live in variables OPT_*, set by
# scripts/vm.

# The first net for bugs: poisoned and red-zoned slabs, sampled guard pages,
# and a stop at the first warning.
VM_DEBUG_ARGS="slab_debug=FZP kfence.sample_interval=1 page_poison=1 panic_on_warn=1 oops=panic"
# Kernels of our own have better checks built in.
VM_OWN_ARGS="panic_on_warn=1 oops=panic"
# An idle processor that halts is a host thread that sleeps: waking it takes
# longer than what benchmarks measure. So it polls, if the host has a processor
# for each of the machine's.
VM_FAST_ARGS="idle=poll"
# A panic ends the machine.
VM_BOOT_ARGS="console=ttyS0 loglevel=7 panic=-1 nowatchdog no_timer_check net.ifnames=0"
# A machine without secrets does not need mitigations, and emulated they cost many
# times what they cost a processor. With KVM they stay on, as on a host.
VM_TCG_ARGS="mitigations=off"

# The accelerator that ACCEL chooses: kvm or tcg.
accelerator() { case "${ACCEL[*]}" in *kvm*) echo kvm ;; *) echo tcg ;; esac; }

# Commas part options in QEMU's command line; a path may have some.
q() { printf '%s' "${1//,/,,}"; }

# Sets ACCEL. That /dev/kvm exists says little: only a boot shows whether it
# works here. The answer is kept until the host or the guest's kernel changes.
choose_accelerator() {
  local release=$1 answer key
  ACCEL=(-accel "tcg,thread=multi,tb-size=512" -cpu "max,la57=off,erms=off,fsrm=off")
  [ -w /dev/kvm ] || return 0
  key="$(uname -r) $release $(stat -c %Z /dev/kvm)"
  answer=$WEFT_CACHE/vm/kvm.answer
  if [ "$(head -n 1 "$answer" 2>/dev/null)" != "$key" ]; then
    say "trying whether KVM works here ..."
    local works=no
    if probe_kvm "$release"; then works=yes; fi
    printf '%s\n%s\n' "$key" "$works" >"$answer"
    say "KVM works: $works"
  fi
  if [ "$(tail -n 1 "$answer")" = yes ]; then ACCEL=(-accel kvm -cpu host); fi
}

probe_kvm() {
  local run=$WEFT_OUT/vm/probe.$$ works=1
  mkdir -p "$run"
  write_job "$run" 0 probe
  ACCEL=(-accel kvm -cpu host)
  boot "$1" "$run" 0 20 >/dev/null 2>&1 || true
  [ ! -s "$run/status" ] || works=0
  rm -rf "$run"
  ACCEL=(-accel "tcg,thread=multi,tb-size=512" -cpu "max,la57=off,erms=off,fsrm=off")
  return $works
}

# Under emulation the guest's processor clock is the host's, and a busy host
# lets the guest misjudge its rate: now and then its time runs many times too
# fast. What a good boot found (two measurements that agree) is told to those
# that follow, until the host restarts.
clock_arguments() {
  local known=$WEFT_CACHE/vm/tsc.khz
  [ "$(accelerator)" = tcg ] || return 0
  if [ "$(head -n 1 "$known" 2>/dev/null)" = "$(host_boot)" ]; then
    echo "tsc=reliable tsc_early_khz=$(tail -n 1 "$known")"
  fi
}

# learn_clock LOG
learn_clock() {
  local khz known=$WEFT_CACHE/vm/tsc.khz
  [ -z "$(clock_arguments)" ] || return 0
  khz=$(sed -n 's/.*Refined TSC clocksource calibration: \([0-9]*\)\.\([0-9]*\) MHz.*/\1\2/p' "$1" | head -n 1)
  if [ -n "$khz" ]; then printf '%s\n%s\n' "$(host_boot)" "$khz" >"$known"; fi
}

host_boot() { cat /proc/sys/kernel/random/boot_id; }

# write_job RUN INDEX main|probe [CMD...]: what the guest's init reads.
# Strings only and one array, which busybox's shell does not have to read.
write_job() {
  local run=$1 index=$2 kind=$3 name value
  shift 3
  {
    for name in WEFT_ROOT WEFT_OUT; do printf "%s=%s\n" "$name" "$(quote "${!name}")"; done
    printf "VM_RUN=%s\nVM_CWD=%s\nVM_INDEX=%s\n" "$(quote "$run")" "$(quote "$OPT_CWD")" "$index"
    printf "VM_PROBE=%s\n" "$([ "$kind" != probe ] || echo 1)"
    printf "VM_NODES=%s\nVM_MACHINES=%s\nVM_MTU=%s\nVM_TIMEOUT=%s\n" "$OPT_NODES" "$OPT_VMS" "$OPT_MTU" "$([ -n "$OPT_SHELL" ] && echo 0 || echo "$OPT_TIMEOUT")"
    printf "VM_KERNEL=%s\nVM_SLOWNESS=%s\nVM_ACCEL=%s\nWEFT_KO=%s\n" "$KIND" "$SLOWNESS" "$(accelerator)" "$(quote "$KMOD_OUT/weft.ko")"
    printf "VM_MODULE=%s\nVM_META=%s\nVM_META_NODE=%s\nVM_SHELL=%s\n" "$OPT_MODULE" "$OPT_META" "$OPT_META_NODE" "$OPT_SHELL"
    printf "VM_MODULE_ARGS=%s\nVM_META_ARGS=%s\n" "$(quote "${WEFT_MODULE_ARGS:-}")" "$(quote "${WEFT_META_ARGS:-}")"
    printf "VM_TERM=%s\n" "$(quote "${TERM:-dumb}")"
  } >"$run/job.sh"
  {
    printf 'VM_COMMAND=('
    for value in "$@"; do printf '%s ' "$(quote "$value")"; done
    printf ')\n'
    for value in "${OPT_ENV[@]}"; do printf 'export %s\n' "$(quote "$value")"; done
  } >"$run/command.sh"
}

# How long a machine may take until it has its nodes, in seconds.
boot_seconds() { echo "${WEFT_VM_BOOT_SECONDS:-$((60 * SLOWNESS))}"; }

# boot_until_up RELEASE RUN INDEX SECONDS [QEMU-ARG...]: runs one machine to its end. Now
# and then the emulator loses a timer of a processor that boots, and what waits for it
# sleeps for ever. So a machine that is not up in time is booted again, three times in all.
# Nothing of Weft runs in it before it is up. The process of each boot is in RUN/boot.pid,
# and the emulator's, once it has one, in RUN/qemu.pid.
boot_until_up() {
  local run=$2 try pid
  for ((try = 1; ; try++)); do
    # An emulator that was killed has left it behind.
    rm -f "$run/qemu.pid"
    # An emulator that does not start writes no log, and those that read it expect one.
    : >"$run/kernel.log"
    boot "$@" >"$run/qemu.log" 2>&1 &
    pid=$!
    echo "$pid" >"$run/boot.pid"
    if [ "$try" = 3 ] || came_up "$pid" "$run"; then break; fi
    say "the machine did not boot in $(boot_seconds) s and is booted again. The log of the first: $run/kernel.log.$try"
    kill -KILL "$(cat "$run/qemu.pid")" 2>/dev/null || true
    wait "$pid" || true
    mv "$run/kernel.log" "$run/kernel.log.$try"
  done
  wait "$pid"
}

# came_up PID RUN: fails if the machine has not ended, and has no nodes either, in time.
came_up() {
  local pid=$1 run=$2 deadline=$((SECONDS + $(boot_seconds)))
  until [ -e "$run/up" ] || ! kill -0 "$pid" 2>/dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.2
  done
}

# A word that every shell reads as it is.
quote() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

# boot RELEASE RUN INDEX SECONDS [QEMU-ARG...]: runs one machine to its end.
boot() {
  local release=$1 run=$2 index=$3 seconds=$4 arguments
  shift 4
  arguments="$VM_BOOT_ARGS $(clock_arguments)"
  [ "$(accelerator)" != tcg ] || arguments+=" $VM_TCG_ARGS"
  # Counting costs time at each allocation.
  [ -n "$OPT_CGROUPS" ] || arguments+=" cgroup_disable=memory"
  if has_checks; then
    arguments+=" $VM_OWN_ARGS"
  elif [ -n "$OPT_DEBUG" ]; then
    arguments+=" $VM_DEBUG_ARGS"
  elif [ $((OPT_VMS * OPT_SMP)) -le "$(nproc)" ]; then
    arguments+=" $VM_FAST_ARGS"
  fi
  local limit=(timeout --kill-after=5 "$seconds")
  [ -z "$OPT_SHELL" ] || limit=(env)
  cd "$WEFT_ROOT"
  WEFT_BIND=$WEFT_CACHE/vm tree_env in_tree "${limit[@]}" qemu-system-x86_64 \
    -name "weft-vm$index" -nodefaults -no-user-config -display none -no-reboot -pidfile "$run/qemu.pid" \
    -machine q35,smm=off,i8042=off,vmport=off "${ACCEL[@]}" -smp "$OPT_SMP" -m "$OPT_MEM" \
    -kernel "$KERNEL" -initrd "$INITRAMFS" -append "$arguments" \
    -chardev "file,id=log,path=$(q "$run/kernel.log")" -serial chardev:log \
    -device virtio-serial-pci \
    -chardev "file,id=out,path=$(q "$run/stdout")" -device virtserialport,chardev=out,name=weft.out \
    -chardev "file,id=err,path=$(q "$run/stderr")" -device virtserialport,chardev=err,name=weft.err \
    -fsdev "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap" \
    -device virtio-9p-pci,fsdev=root,mount_tag=weft_root \
    -fsdev "local,id=job,path=$(q "$run"),security_model=none" \
    -device virtio-9p-pci,fsdev=job,mount_tag=weft_job \
    "$@"
}
