# The kernels that the module is built for and that the VM boots. Sourced after
# common.sh.
#
#   stock    Debian's, as users have it
#   checked  the same source with KASAN, lockdep, DEBUG_OBJECTS and fault injection
#   leaks    the same source with kmemleak and fault injection
#   next     stock again, of Debian's next release, with that release's compilers

# The tree that holds the next release's kernel and compilers. The VM's root is
# the other one: only the kernel differs.
NEXT_TREE=$WEFT_CACHE/tree-next

# choose_kernel KIND: sets KIND; RELEASE; KERNEL_TREE; SDK, the build folder inside
# it; KERNEL_CC; and KMOD_OUT, where weft.ko for it goes.
choose_kernel() {
  KIND=$1 KERNEL_TREE=$WEFT_TREE
  case $KIND in
    stock)
      SDK=/usr/src/weft-linux KERNEL_CC=x86_64-linux-gnu-gcc-14 KMOD_OUT=$WEFT_OUT/kmod
      RELEASE=$(cat "$WEFT_CACHE/kernel.release")
      ;;
    checked | leaks)
      [ -e "$WEFT_CACHE/$KIND.done" ] ||
        die "the kernel '$KIND' has not been made." "Run scripts/setup --$KIND first (a quarter of an hour, once)."
      SDK=/usr/src/weft-linux-$KIND KERNEL_CC=clang KMOD_OUT=$WEFT_OUT/kmod-$KIND
      RELEASE=$(cat "$WEFT_CACHE/kernel-$KIND.release")
      ;;
    next)
      [ -e "$WEFT_CACHE/next.done" ] ||
        die "the next release's kernel is not there." "Run scripts/setup --next first (a few minutes, once)."
      KERNEL_TREE=$NEXT_TREE SDK=/usr/src/weft-linux KMOD_OUT=$WEFT_OUT/kmod-next
      RELEASE=$(cat "$WEFT_CACHE/kernel-next.release")
      KERNEL_CC=$(compiler_of "$NEXT_TREE$SDK/.config")
      ;;
    *) die "there is no kernel '$KIND'." "It is one of: stock, checked, leaks, next." ;;
  esac
}

# compiler_of CONFIG: the C compiler that built the kernel with this configuration.
compiler_of() { sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ "]*\).*/\1/p' "$1"; }

# Whether the kernel is one of our own, with checks built in.
has_checks() { [ "$KIND" = checked ] || [ "$KIND" = leaks ]; }

# setup_for KIND: makes the machine ready for a kernel.
setup_for() {
  case $1 in
    checked | leaks | next) "$WEFT_ROOT/scripts/setup" "--$1" ;;
    *) "$WEFT_ROOT/scripts/setup" ;;
  esac
}

# How many times slower than the stock kernel it is, for limits in seconds.
slowness_of() {
  case $1 in
    checked) echo 6 ;;
    leaks) echo 3 ;;
    *) echo 1 ;;
  esac
}

# weft_make FOLDER TARGET...: the kernel's build in a folder of ours, with this repository
# as the module.
weft_make() {
  local folder=$1
  shift
  drop_other_kernels "$folder"
  WEFT_TREE=$KERNEL_TREE tree_env in_tree make -C "$SDK" CC="$KERNEL_CC" M="$WEFT_ROOT" MO="$folder" --no-print-directory "$@"
}

# drop_other_kernels FOLDER: a kernel that was built anew has other Rust crates, with which
# what was compiled in the folder before does not fit; make does not see that.
drop_other_kernels() {
  local stamp=$1/kernel.stamp now
  now=$(stat -c '%Y %s' "$KERNEL_TREE$SDK/rust/libkernel.rmeta")
  if [ "$(cat "$stamp" 2>/dev/null)" != "$now" ]; then
    rm -rf "$1"
    mkdir -p "$1"
    printf '%s\n' "$now" >"$stamp"
  fi
}
