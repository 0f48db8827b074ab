#!/bin/bash
# scripts/install puts each file where its users look for it, and installs nothing if something
# was not built, or not all is of one commit.
# checks: 18
export VM_SLOWNESS=1
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
. "$ROOT/tests/vm/lib.sh"

WEFT_CACHE=$(mktemp -d)
export WEFT_CACHE DESTDIR=$WEFT_CACHE/dest
trap 'rm -rf "$WEFT_CACHE"' EXIT
OUT=$(bash -c '. "$1" && echo "$WEFT_OUT"' bash "$ROOT/scripts/lib/common.sh")
INSTALL=$ROOT/scripts/install

# built NAME...: as if scripts/build had made them, each with its name in it.
built() {
  local name
  for name in "$@"; do
    mkdir -p "$OUT/$(dirname "$name")"
    basename "$name" >"$OUT/$name"
  done
}
# of COMMIT FOLDER...: as if what is there had been built from it.
of() {
  local folder
  for folder in "${@:2}"; do mkdir -p "$OUT/$folder" && echo "$1" >"$OUT/$folder/built-from"; done
}
# has PATH: it was installed, and is the file of that name.
has() { [ "$(cat "$DESTDIR$1")" = "$(basename "$1")" ]; }
# for_others: others can read all files that were installed, and enter all folders.
for_others() {
  local closed
  closed=$(find "$DESTDIR" -type f ! -perm -o=r -o -type d ! -perm -o=rx) && [ -z "$closed" ] && return
  printf 'these are closed: %s\n' "$closed"
  return 1
}

check "without a prefix it says how it is called" refuses 2 "Usage: scripts/install PREFIX" "$INSTALL"
check "a machine that is not set up is told so" refuses 1 "not set up" "$INSTALL" /opt/weft
touch "$WEFT_CACHE/setup.done"
echo 7.0-test >"$WEFT_CACHE/kernel.release"
built target/release/{weftctl,weft-meta,weft-cp,libweft.so}
check "what was not built is named" refuses 1 "kmod/weft.ko" "$INSTALL" /opt/weft
built kmod/weft.ko
check "so is what may be of several commits" refuses 1 "all-programs was built from" "$INSTALL" /opt/weft
COMMIT=$(bash -c '. "$1/common.sh" && . "$1/commit.sh" && source_commit' bash "$ROOT/scripts/lib")
of "$COMMIT" all-programs
of 0123456789ab kmod
check "a mixture of two commits is none to install" refuses 1 "from two commits" "$INSTALL" /opt/weft
of 0123456789ab all-programs
check "nor is what was built before the sources changed" refuses 1 "what was built is of 0123456789ab" "$INSTALL" /opt/weft
check "and nothing was installed" test ! -e "$DESTDIR"

of "$COMMIT" all-programs kmod
private() (umask 077 && "$@")
check "it installs" private "$INSTALL" /opt/weft
for program in weftctl weft-meta weft-cp; do check "$program is there" test -x "$DESTDIR/opt/weft/bin/$program"; done
check "weft.h is there" cmp "$ROOT/shim/include/weft.h" "$DESTDIR/opt/weft/include/weft.h"
check "so is libweft.so" has /opt/weft/lib/libweft.so
is "by the name that programs are linked with" "$(readlink "$DESTDIR/opt/weft/lib/libweft.so")" libweft.so.1
check "weft.pc says where they are" grep -qx prefix=/opt/weft "$DESTDIR/opt/weft/lib/pkgconfig/weft.pc"
check "the module is there, for its kernel" has /lib/modules/7.0-test/updates/weft.ko
is "the unit starts the program that was installed" \
  "$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$DESTDIR/opt/weft/lib/systemd/system/weft-meta.service")" /opt/weft/bin/weft-meta
check "others can read all of it, whatever root's umask is" for_others
done_testing
