#!/bin/bash
# Setting up and scripts/quickstart from nothing, on a disk of the size that README.md
# names: what a machine lacks is told before anything is done; a run that is killed in
# the middle is no harm to the next, even if apt's lists are gone by then; and it works a
# second time. The disk is memory: it needs 8 GiB of that, and a quarter of an hour.
# checks: 17
export VM_SLOWNESS=1
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# Mounts, of a namespace of its own, go with it.
[ -n "${WEFT_SETUP_TEST:-}" ] || exec env WEFT_SETUP_TEST=1 unshare --mount --propagation private -- bash "$0" "$@"
. "$ROOT/tests/vm/lib.sh"

readonly GIB=8
DISK=$(mktemp -d)
trap 'umount "$DISK"; rmdir "$DISK"' EXIT
export WEFT_CACHE=$DISK/cache
readonly LOGS=$WEFT_CACHE/log

# disk SIZE: an empty one.
disk() {
  umount "$DISK" 2>/dev/null
  mount -t tmpfs -o "size=$1" none "$DISK"
}
# "${WITHOUT[@]}" CAPABILITIES CMD... runs CMD as root in a container that keeps those back. It is
# no function, because `refuses` runs programs alone.
readonly WITHOUT=(setpriv --bounding-set)
nothing_was_made() { [ -z "$(find "$WEFT_CACHE" -mindepth 1 ! -name '*.lock' -print -quit)" ]; }

# killed_when PATTERN LOG CMD...: as if the machine lost its power when the log has it.
killed_when() {
  local pattern=$1 log=$2 pid deadline=$((SECONDS + 900))
  shift 2
  unshare --pid --fork --kill-child --mount-proc -- "$@" >"$DISK/out" 2>&1 &
  pid=$!
  # It would go on without this test. (`check` runs this in a subshell.)
  trap 'kill -KILL "$pid"; exit 130' INT TERM HUP
  until grep -q "$pattern" "$log" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ] || { tail -n 5 "$DISK/out"; return 1; }
    sleep 0.1
  done
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null
  return 0
}

# what a machine lacks
disk 1g
check "a disk that is too small is refused" refuses 1 "8192 are needed" "$ROOT/scripts/quickstart"
check "before anything is done" nothing_was_made
disk ${GIB}g
check "all tests are told that they need more" refuses 1 "10240 are needed" "$ROOT/scripts/test"
check "root without CAP_SYS_ADMIN is told so" refuses 1 CAP_SYS_ADMIN "${WITHOUT[@]}" -sys_admin "$ROOT/scripts/quickstart"
check "root without CAP_MKNOD is told so" refuses 1 CAP_MKNOD "${WITHOUT[@]}" -mknod "$ROOT/scripts/quickstart"
check "root without CAP_SYS_CHROOT is told so" refuses 1 CAP_SYS_CHROOT "${WITHOUT[@]}" -sys_chroot "$ROOT/scripts/quickstart"
check "before anything is done, too" nothing_was_made

# when it is killed in each of its parts, then the next run goes on
check "it is killed while Debian's tree is made" \
  killed_when Unpacking "$LOGS/Debian-trixie-tree.log" "$ROOT/scripts/quickstart"
check "it is killed while packages are installed" \
  killed_when "Setting up" "$LOGS/compilers--QEMU-and-RDMA-user-space.log" "$ROOT/scripts/quickstart"
check "it is killed while the kernel is installed" \
  killed_when "Setting up linux-headers" "$LOGS/stock-kernel-and-its-headers.log" "$ROOT/scripts/setup"
# It is as if they could not be fetched.
find "$WEFT_CACHE/tree/var/lib/apt/lists" -type f -delete
check "it is killed while the kernel's SDK is made" \
  killed_when "RUSTC" "$LOGS/kernel-SDK-for-Rust-modules.log" "$ROOT/scripts/setup"
check "then it works" says "A connection to a new peer costs" "$ROOT/scripts/quickstart"

# when it is run again, then it has nothing to do
begin=$SECONDS
check "it works a second time" says "A connection to a new peer costs" "$ROOT/scripts/quickstart"
at_most "and sets nothing up" "$((SECONDS - begin))" 120
check "scripts/setup says so" says "set up already" "$ROOT/scripts/setup"
check "all programs can be built on this disk" "$ROOT/scripts/build"
at_most "MiB of the disk are in use" "$(df -m --output=used "$DISK" | tail -n 1 | tr -d ' ')" $((GIB * 1024 - 512))
done_testing
