# Looks for what must not be in a kernel's log. Sourced after common.sh.

# Bugs that the kernel found: crashes, warnings, memory that was misused,
# locks and lists that are wrong, tasks that hang, Rust code that panicked.
VM_REPORTS='BUG:|BUG [a-zA-Z0-9_-]+ |Oops|WARNING: |cut here|Kernel panic|kernel BUG|general protection|[Uu]nable to handle'
VM_REPORTS+='|KFENCE: |KASAN: |UBSAN: |(Poison|Redzone|Padding|Left Redzone|Right Redzone) overwritten|Object already free|Slab corruption'
VM_REPORTS+='|refcount_t: |suspicious RCU|possible (circular|recursive) locking|inconsistent lock state|INFO: .*lock'
VM_REPORTS+='|held lock freed|lock held when returning|bad unlock balance|Invalid wait context|sleeping function called|ODEBUG: '
# From here on lockdep says nothing any more.
VM_REPORTS+='|turning off the locking correctness validator'
VM_REPORTS+='|blocked for more than|soft lockup|hard LOCKUP|detected (expedited )?stalls|self-detected stall|scheduling while atomic'
VM_REPORTS+='|list_(add|del)[a-z_. ]* corruption|unreferenced object|suspected memory leak|Objects remaining|bad page state|panicked at'

# scan_log LOG: fails, and shows the reports, if there are any.
scan_log() {
  local log=$1 hits first
  hits=$(grep -nE "$VM_REPORTS" "$log" || true)
  [ -n "$hits" ] || return 0
  first=${hits%%$'\n'*}
  say "the kernel reported a bug: ${first#*:}"
  sed -n "${first%%:*},+80p" "$log" | cut -c1-200 >&2
  say "$(printf '%s\n' "$hits" | wc -l) line(s) of the log look like reports. The whole log: $log"
  return 1
}
