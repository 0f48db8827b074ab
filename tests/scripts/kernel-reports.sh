#!/bin/bash
# The scan of a machine's log has to find each kind of kernel report, and
# nothing in the log of a healthy boot.
# checks: 33
. "$(dirname "$0")/../../scripts/lib/common.sh"
. "$WEFT_ROOT/scripts/lib/vm-scan.sh"

accelerator() { echo tcg; }
LOG=$(mktemp)
trap 'rm -f "$LOG"' EXIT
FAILURES=0

verdict() {
  if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; FAILURES=$((FAILURES + 1)); fi
}

# finds NAME LINE
finds() {
  local missed=0
  printf '[    1.000000] Run /init as init process\n[    2.000000] %s\n' "$2" >"$LOG"
  if scan_log "$LOG" 2>/dev/null; then missed=1; fi
  verdict $missed "the scan finds $1"
}

finds "an oops" "Oops: Oops: 0002 [#1] SMP NOPTI"
finds "a null pointer" "BUG: kernel NULL pointer dereference, address: 0000000000000008"
finds "a warning" "WARNING: CPU: 0 PID: 31 at lib/refcount.c:28 refcount_warn_saturate+0xf8/0x130"
finds "a warning without a place" "------------[ cut here ]------------"
finds "a panic" "Kernel panic - not syncing: sysrq triggered crash"
finds "a KFENCE report" "BUG: KFENCE: use-after-free read in weft_open+0x10/0x20 [weft]"
finds "a poisoned object" "BUG kmalloc-64 (Tainted: G  O ): Poison overwritten"
finds "a cache with objects left" "BUG weft_vqp (Tainted: G  O ): Objects remaining on __kmem_cache_shutdown()"
finds "a refcount" "refcount_t: underflow; use-after-free."
finds "RCU misuse" "WARNING: suspicious RCU usage"
finds "a lock cycle" "WARNING: possible circular locking dependency detected"
finds "a softirq's lock without protection" "WARNING: inconsistent lock state"
finds "a lock that was freed while held" "WARNING: held lock freed!"
finds "a spin lock around a mutex" "[ BUG: Invalid wait context ]"
finds "a sleep under a spin lock" "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:283"
finds "lockdep that has given up" "turning off the locking correctness validator."
finds "an object that is used in a wrong state" "ODEBUG: free active (active state 0) object: ff1100010a2b3c40 object type: work_struct"
finds "a KASAN report" "BUG: KASAN: slab-use-after-free in weft_ioctl+0x10/0x20 [weft]"
finds "an object that nothing points to" "kmemleak: unreferenced object 0xff1100010a2b3c40 (size 64):"
finds "a hung task" "INFO: task weft-meta:41 blocked for more than 120 seconds."
finds "a soft lockup" "watchdog: BUG: soft lockup - CPU#0 stuck for 22s!"
finds "an RCU stall" "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"
finds "a protection fault" "general protection fault, probably for non-canonical address 0x6b6b6b6b6b6b6b6b: 0000"
finds "a corrupted list" "list_del corruption. prev->next should be ff11000104f0d2a8, but was 6b6b6b6b6b6b6b6b"
finds "a leak" "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)"
finds "a Rust panic" "rust_kernel: panicked at kmod/session.rs:10:5:"
finds "a network device that does not go" "unregister_netdevice: waiting for v1 to become free. Usage count = 2"
finds "a sleep in atomic context" "BUG: scheduling while atomic: swapper/0/0/0x00000101"

printf '[    0.1] %s\n' "kfence: initialized - using 2097152 bytes for 255 objects" \
  "ACPI: PM: (supports S0 S3 S4 S5)" "weft: loading out-of-tree module taints kernel." \
  "weft: module verification failed: signature and/or required key missing - tainting kernel" \
  "kmemleak: Kernel memory leak detector initialized (mem pool available: 62829)" \
  "... MAX_LOCKDEP_SUBCLASSES:  8" "rcu: RCU lockdep checking is enabled." \
  "bridge: filtering via arp/ip/ip6tables is no longer available by default." >"$LOG"
healthy=0
scan_log "$LOG" || healthy=1
verdict $healthy "the scan is quiet about a healthy boot"

# answers STATUS ACCELERATOR CODE NAME: the scan's status for an oops in a breakpoint
answers() {
  local status=0
  eval "accelerator() { echo $2; }"
  printf '[    7.9] %s\n' "Oops: int3: 0000 [#1] SMP NOPTI" "RIP: 0010:__mod_timer+0x1c3/0x370" "Code: 5f c3 85 c0 $3 <90> f7 c1 cc" >"$LOG"
  scan_log "$LOG" 2>/dev/null || status=$?
  verdict $((status != $1)) "$4"
}
answers 89 tcg 66 "a breakpoint that is not in memory is the emulator's"
answers 86 tcg cc "one that is there is the kernel's"
answers 86 kvm 66 "and so is any where nothing is emulated"
accelerator() { echo tcg; }
printf '[    7.9] %s\n' "WARNING: CPU: 0 PID: 31 at lib/refcount.c:28" "Oops: int3: 0000 [#1] SMP NOPTI" "Code: 66 <90>" >"$LOG"
status=0
scan_log "$LOG" 2>/dev/null || status=$?
verdict $((status != 86)) "or behind another report"
exit $((FAILURES > 0))
