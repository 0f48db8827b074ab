# Shared by every script here: where things live, how to say what is going on,
# and how to run a command inside the build tree. Sourced, never executed.

set -euo pipefail
# Others can read what is built and installed, whatever root's own umask is.
umask 022

WEFT_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WEFT_CACHE=${WEFT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weft}
# The Debian tree that holds every compiler, the kernel's build and QEMU.
WEFT_TREE=$WEFT_CACHE/tree
# Build products. Outside the source, so that a clone stays a clone.
WEFT_OUT=$WEFT_CACHE/out/$(printf '%s' "$WEFT_ROOT" | cksum | cut -d' ' -f1)
export WEFT_ROOT WEFT_CACHE WEFT_TREE WEFT_OUT

# Colours are for terminals.
is_terminal() { [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; }
styled() { if is_terminal; then printf '\033[%sm%s\033[0m' "$1" "$2"; else printf '%s' "$2"; fi; }

say() { printf '%s %s\n' "$(styled 1 '[weft]')" "$*" >&2; }
die() {
  printf '%s %s\n' "$(styled '1;31' '[weft] error:')" "$1" >&2
  [ $# -lt 2 ] || printf '        %s\n' "${@:2}" >&2
  exit 1
}

. "$WEFT_ROOT/scripts/lib/progress.sh"

need_root() {
  [ "$(id -u)" = 0 ] || die "${0##*/} has to run as root (it makes a chroot and, for tests, mounts)." \
    "Try: sudo $0 (without -E: root would fill your own ~/.cargo and ~/.cache)"
}

# need_disk MIB FOLDER...: dies unless its disk has so many MiB in all for the cache, in what is
# free and in what the folders have of it.
need_disk() {
  local mib=$1 free_mib there_mib
  shift
  free_mib=$(df -Pm "$WEFT_CACHE" | awk 'NR==2 {print $4}')
  [ "$free_mib" -lt "$mib" ] || return 0
  there_mib=$(du -scm "$@" 2>/dev/null | tail -n 1 | cut -f1 || true)
  [ $((free_mib + there_mib)) -ge "$mib" ] ||
    die "only $free_mib MiB are free in $WEFT_CACHE, which has $there_mib; $mib are needed in all." \
      "Free some space, or set WEFT_CACHE to a folder on another disk."
}

need_setup() {
  [ -e "$WEFT_CACHE/setup.done" ] || die "this machine is not set up." "Run scripts/setup first (3 minutes)."
}

# Programs are built without the kernel's SDK: compilers and libraries are enough.
need_tools() { [ -e "$WEFT_CACHE/tools.done" ] || need_setup; }

# Dies if root lacks a right that the build tree needs, as in most containers. Each is
# tried out, because a capability alone does not tell: seccomp and nodev refuse as well.
need_rights() {
  local probe missing=()
  probe=$(mktemp -d "$WEFT_CACHE/probe.XXXXXX")
  unshare --mount --propagation private -- mount -t tmpfs none "$probe" 2>/dev/null || missing+=("mount (CAP_SYS_ADMIN)")
  chroot / true 2>/dev/null || missing+=("chroot (CAP_SYS_CHROOT)")
  { mknod "$probe/null" c 1 3 && : >"$probe/null"; } 2>/dev/null || missing+=("make device files that work (CAP_MKNOD)")
  rm -rf "$probe"
  [ ${#missing[@]} = 0 ] || die "root may not do here what Weft's build tree needs: $(joined_by ', ' "${missing[@]}")." \
    "In a container, start it with --privileged, or work in a virtual machine."
}

# joined_by SEPARATOR WORD...
joined_by() {
  local separator=$1 all=$2 word
  shift 2
  for word in "$@"; do all+=$separator$word; done
  printf '%s' "$all"
}

# in_tree CMD...: runs CMD inside the Debian tree, as root, in the current
# directory, or in the repository if the tree does not have that. The repository, the
# programs that are built and cargo's home are at their own paths there, so their paths
# mean the same on both sides.
in_tree() {
  WEFT_CWD=$PWD unshare --mount --propagation private -- bash -c '
    set -e
    tree=$1; shift
    bind() { [ -e "$1" ] || return 0
      if [ -d "$1" ]; then mkdir -p "$tree$1"; else mkdir -p "$tree${1%/*}"; [ -e "$tree$1" ] || : >"$tree$1"; fi
      mount --rbind "$1" "$tree$1"; }
    for p in /proc /sys /dev /tmp; do bind $p; done
    for p in /etc/resolv.conf /etc/hosts /etc/ssl/certs; do bind $p; done
    bind "$WEFT_ROOT"
    mkdir -p "$CARGO_HOME"; bind "$CARGO_HOME"
    mkdir -p "$WEFT_OUT"; bind "$WEFT_OUT"
    if [ -n "${WEFT_BIND:-}" ]; then bind "$WEFT_BIND"; fi
    exec chroot "$tree" /bin/bash -c "cd \"\$WEFT_CWD\" 2>/dev/null || cd \"\$WEFT_ROOT\" && exec \"\$@\"" bash "$@"
  ' bash "$WEFT_TREE" "$@"
}

# The tree has its own compiler: the one that built the kernel. Nothing of
# rustup may reach into it. Works for commands and for the functions above.
export CARGO_HOME=${CARGO_HOME:-${HOME:-/root}/.cargo}
export CARGO_TARGET_DIR=$WEFT_OUT/target
# Incremental builds would take 2 GB of the disk. Set it to 1 to have them.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
tree_env() (
  unset RUSTUP_TOOLCHAIN RUSTC RUSTFLAGS
  export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
  "$@"
)

apt_in_tree() { tree_env in_tree env DEBIAN_FRONTEND=noninteractive apt-get -y "$@"; }
