# Looks for what must not be in a kernel's log. Sourced after common.sh.

# Bugs that the kernel found: crashes, warnings, memory that was misused,
# locks and lists that are wrong, tasks that hang, network devices that somebody does not
# let go of, Rust code that panicked.
VM_REPORTS='BUG:|BUG [a-zA-Z0-9_-]+ |Oops|WARNING: |cut here|Kernel panic|kernel BUG|general protection|[Uu]nable to handle'
VM_REPORTS+='|KFENCE: |KASAN: |UBSAN: |(Poison|Redzone|Padding|Left Redzone|Right Redzone) overwritten|Object already free|Slab corruption'
VM_REPORTS+='|refcount_t: |suspicious RCU|possible (circular|recursive) locking|inconsistent lock state|INFO: .*lock'
VM_REPORTS+='|held lock freed|lock held when returning|bad unlock balance|Invalid wait context|sleeping function called|ODEBUG: '
# From here on lockdep says nothing any more.
VM_REPORTS+='|turning off the locking correctness validator'
VM_REPORTS+='|blocked for more than|soft lockup|hard LOCKUP|detected (expedited )?stalls|self-detected stall|scheduling while atomic'
VM_REPORTS+='|list_(add|del)[a-z_. ]* corruption|unreferenced object|suspected memory leak|Objects remaining|bad page state|panicked at'
VM_REPORTS+='|unregister_netdevice: waiting'

# The statuses of a run whose kernel's log has reports in it.
KERNEL_BUG=86 EMULATOR_BUG=89

# is_emulators LOG: whether its first report is of a breakpoint that is not in memory: the
# byte before the one that the processor was to go on with, which `Code:` shows in angle
# brackets, is no int3 (0xcc). The kernel puts breakpoints where it changes its own code,
# and takes them away when it is done. Emulated, a processor can translate such a
# breakpoint while another one takes it away; if the host lets that one sleep at the wrong
# moment, QEMU does not notice, and what was translated stays. No processor does that, and
# with KVM it would count as the kernel's.
is_emulators() {
  local before
  [ "$(accelerator)" = tcg ] || return 1
  grep -m 1 -E "$VM_REPORTS" "$1" | grep -q 'Oops: int3:' || return 1
  before=$(sed -n '/Oops: int3:/,$s/.*Code: .*\([0-9a-f][0-9a-f]\) <[0-9a-f][0-9a-f]>.*/\1/p' "$1" | head -n 1)
  [ -n "$before" ] && [ "$before" != cc ]
}

# scan_log LOG: shows the reports, if there are any. Fails then, with one of the statuses.
scan_log() {
  local log=$1 hits first
  hits=$(grep -nE "$VM_REPORTS" "$log" || true)
  [ -n "$hits" ] || return 0
  first=${hits%%$'\n'*}
  if is_emulators "$log"; then
    say "the emulator ran code that is not in the machine's memory: ${first#*:}"
    sed -n "${first%%:*},+20p" "$log" | cut -c1-200 >&2
    return $EMULATOR_BUG
  fi
  say "the kernel reported a bug: ${first#*:}"
  sed -n "${first%%:*},+80p" "$log" | cut -c1-200 >&2
  say "$(printf '%s\n' "$hits" | wc -l) line(s) of the log look like reports. The whole log: $log"
  return $KERNEL_BUG
}
