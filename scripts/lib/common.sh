# Shared by every script here: where things live, how to say what is going on,
# and how to run a command inside the build tree. Sourced, never executed.

set -euo pipefail

WEFT_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WEFT_CACHE=${WEFT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weft}
# The Debian tree that holds every compiler, the kernel's build and QEMU.
WEFT_TREE=$WEFT_CACHE/tree
# Build products. Outside the source, so that a clone stays a clone.
WEFT_OUT=$WEFT_CACHE/out/$(printf '%s' "$WEFT_ROOT" | cksum | cut -d' ' -f1)
export WEFT_ROOT WEFT_CACHE WEFT_TREE WEFT_OUT

say() { printf '\033[1m[weft]\033[0m %s\n' "$*" >&2; }
die() {
  printf '\033[1;31m[weft] error:\033[0m %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '        %s\n' "${@:2}" >&2
  exit 1
}

# Runs "$@" with its output in a log; shows the log's end if it fails. Not for
# conditions: bash would go on after an error inside.
# step WHAT CMD...
step() {
  local what=$1 log start end status
  shift
  mkdir -p "$WEFT_CACHE/log"
  log=$WEFT_CACHE/log/$(printf '%s' "$what" | tr -c 'a-zA-Z0-9' '-').log
  start=$(date +%s)
  say "$what ..."
  set +e
  (set -e; "$@") >"$log" 2>&1
  status=$?
  set -e
  if [ "$status" != 0 ]; then
    tail -n 25 "$log" >&2
    explain_failure "$log"
    die "$what failed." "The whole log is $log"
  fi
  end=$(date +%s)
  say "$what: done in $((end - start)) s"
}

# Says in plain words what the commonest failures mean.
explain_failure() {
  if grep -qiE 'no space left|not enough free space' "$1"; then
    say "the disk is full: $(df -h --output=avail "$WEFT_CACHE" | tail -n 1 | tr -d ' ') left in $WEFT_CACHE"
  elif grep -qiE 'could not resolve|temporary failure|failed to fetch|failed getting release file|connection (refused|timed out)|unable to connect|network is unreachable' "$1"; then
    say "the package registries cannot be reached: check the network and its proxy settings"
  fi
}

need_root() {
  [ "$(id -u)" = 0 ] || die "${0##*/} has to run as root (it makes a chroot and, for tests, mounts)." \
    "Try: sudo -E $0"
}

need_setup() {
  [ -e "$WEFT_CACHE/setup.done" ] || die "this machine is not set up." "Run scripts/setup first (2 minutes)."
}

# in_tree CMD...: runs CMD inside the Debian tree, as root, in the current
# directory. The repository, the cache and cargo's home are at their own paths
# there, so paths mean the same on both sides.
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
    exec chroot "$tree" /bin/bash -c "cd \"\$WEFT_CWD\" && exec \"\$@\"" bash "$@"
  ' bash "$WEFT_TREE" "$@"
}

# The tree has its own compiler: the one that built the kernel. Nothing of
# rustup may reach into it. Works for commands and for the functions above.
export CARGO_HOME=${CARGO_HOME:-${HOME:-/root}/.cargo}
export CARGO_TARGET_DIR=$WEFT_OUT/target
tree_env() (
  unset RUSTUP_TOOLCHAIN RUSTC RUSTFLAGS
  export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
  "$@"
)

apt_in_tree() { tree_env in_tree env DEBIAN_FRONTEND=noninteractive apt-get -y "$@"; }
