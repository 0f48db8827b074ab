#!/bin/bash
# Images that machines boot from are made once, and kept as long as a machine uses them.
# checks: 5
. "$(dirname "$0")/lib/scratch.sh"
WEFT_CACHE=$SCRATCH/cache
. "$ROOT/scripts/lib/common.sh"
. "$ROOT/scripts/lib/vm-image.sh"
set +e

mkdir -p "$WEFT_CACHE/vm" "$WEFT_TREE/usr/lib/modules/7.0-test"
touch "$WEFT_TREE/usr/lib/modules/7.0-test/vmlinuz"
unpack_kernel() { echo unpacked >"$2"; }
step() { echo made >"$INITRAMFS"; }

ensure_images 7.0-test
is "images are made" "$(cat "$KERNEL" "$INITRAMFS" | tr '\n' ' ')" "unpacked made "
touch -ad "3 days ago" "$WEFT_CACHE/vm/"*
used=$KERNEL
ensure_images 7.0-test
forget_old 'vmlinux-*'
check "one that is used stays" test -e "$used"
touch -ad "3 days ago" "$KERNEL"
forget_old 'initramfs-*.cpio'
check "others are not looked at" test -e "$KERNEL"
# find fails if another machine's has been quicker.
find() { command find "$@"; return 1; }
(set -e; forget_old 'vmlinux-*')
is "an old one is forgotten, whichever machine is first" "$?" 0
check "and is gone" test ! -e "$KERNEL"
done_testing
