# kmemleak, where the kernel has it: memory that nothing points to any more is a
# report in the kernel's log, where scripts/vm finds it.

readonly KMEMLEAK=/sys/kernel/debug/kmemleak
# It takes what is younger than five seconds for not leaked yet, and a pointer that moves
# while it looks can escape it: so it looks twice, and what it reports was found twice.
readonly LEAK_AGE=6

scan_for_leaks() { echo scan >"$KMEMLEAK"; }

# What there was before the module is none of ours.
forget_leaks() {
  [ "$VM_KERNEL" = leaks ] || return 0
  scan_for_leaks
  echo clear >"$KMEMLEAK"
}

report_leaks() {
  [ "$VM_KERNEL" = leaks ] || return 0
  sleep $LEAK_AGE
  scan_for_leaks
  sleep 1
  scan_for_leaks
  head -c 20000 "$KMEMLEAK" | while read -r line; do echo "kmemleak: $line"; done >/dev/kmsg
}
