#!/bin/bash
# weft.ko can be loaded and unloaded for ever: nothing is leaked, nothing is
# reported (the machine's log is scanned), and a module in use stays.
# vm: --no-module --meta --nodes 2 --timeout 600
# checks: 24
. "$(dirname "$0")/lib.sh"

readonly KO=$WEFT_KO META=10.77.0.1:7471
readonly WARM_UP=20 ROUNDS=80

cycle() { insmod "$KO" "$@" && rmmod weft; }
cycles() {
  local i rounds=$1
  shift
  for ((i = 0; i < rounds; i++)); do cycle "$@" || { echo "round $i"; return 1; }; done
}

# Objects in use in each slab cache. With the machine's debugging arguments no
# processor hoards objects, so the numbers are exact once RCU has caught up.
objects() {
  echo 3 >/proc/sys/vm/drop_caches
  sleep 2
  awk 'NR > 2 { print $1, $2 }' /proc/slabinfo | sort
}

# A machine has more slab caches than that; fewer were not read.
readonly CACHES=50

# Caches that grew by an object a round or more, between two such lists.
grown() {
  join "$1" "$2" | awk -v n="$ROUNDS" -v least="$CACHES" '$3 - $2 >= n { print $1, $2, "->", $3 }
    END { if (NR < least) print "only", NR, "caches were compared" }'
}

# A leak stays and grows with each cycle. What RCU or a work queue frees late
# on a busy machine goes, and so do freed address ranges, with the next cycle.
nothing_has_grown() {
  cycle && objects >/tmp/after && grown /tmp/before /tmp/after >/tmp/grown || return 1
  cat /tmp/grown
  [ ! -s /tmp/grown ]
}

# kib NAME [BEFORE]: what the machine has of it, less BEFORE.
kib() { awk -v name="$1:" -v before="${2:-0}" '$1 == name { print $2 - before }' /proc/meminfo; }

# given a machine without the module, when it is loaded
check "the module loads" insmod "$KO"
check "/dev/weft is there" test -c /dev/weft
check "its counters are there" test -r "$COUNTERS"
is "nobody uses it" "$(cat /sys/module/weft/refcnt)" 0

# when a descriptor is open, then it stays
exec 5<>/dev/weft
is "an open descriptor is a use" "$(cat /sys/module/weft/refcnt)" 1
check "rmmod with an open descriptor is refused" refuses 1 "Module weft is in use" rmmod weft
check "so is a rmmod that asks nothing before" refuses 1 "Resource temporarily unavailable" /usr/bin/busybox rmmod weft
# The request is IOC_NOP, which needs no session.
check "the descriptor still answers" python3 -c 'import fcntl; fcntl.ioctl(5, 0x5700)'
exec 5>&-
is "closing it ends the use" "$(cat /sys/module/weft/refcnt)" 0
check "the module unloads" rmmod weft
check "/dev/weft is gone" test ! -e /dev/weft
check "its counters are gone" test ! -e "$COUNTERS"

# when it is loaded and unloaded many times, then nothing remains
check "$WARM_UP times to warm up" cycles $WARM_UP
objects >/tmp/before
vmalloc=$(kib VmallocUsed) percpu=$(kib Percpu)
check "$ROUNDS times more" cycles $ROUNDS
if keeps_freed; then
  skip "no slab cache has grown" "KASAN keeps freed objects; kmemleak looks for leaks (--kernel leaks)"
else
  check "no slab cache has grown" within 60 nothing_has_grown
fi
at_most "KiB of vmalloc space that are left over" "$(kib VmallocUsed "$vmalloc")" 256
at_most "KiB of per-CPU memory that are left over" "$(kib Percpu "$percpu")" 256

# when there is a metadata server, then it publishes, and unpublishes
check "the module loads with a metadata server" insmod "$KO" "meta=$META"
check "all nodes are published" within 20 all_published
check "and it unloads" rmmod weft
check "10 times more, at once" cycles 10 "meta=$META"

# when the server is not there, then that is no reason not to load or unload
check "the module loads and unloads without its metadata server" cycle meta=10.77.0.2:9

# when it is given servers that cannot be, then the kernel's log says why it does not load
logs() {
  local reason=$1
  shift
  refuses 1 "could not insert module" insmod "$KO" "$@" && dmesg | grep -qF -- "$reason"
}
check "a server that is named twice is refused" logs "$META is named twice" "meta=$META,$META"
check "so are five servers" logs "$META is one too many" "meta=10.77.0.2:1,10.77.0.2:2,10.77.0.2:3,10.77.0.2:4,$META"
done_testing
