# The kernels that the module is built for and that the VM boots. Sourced after
# common.sh.
#
#   stock    Debian's, as users have it
#   checked  the same source with KASAN, lockdep, DEBUG_OBJECTS and fault injection
#   leaks    the same kernel, told at boot to look for leaks (kmemleak) as well,
#            which makes it twice as slow

# choose_kernel KIND: sets KIND; RELEASE; SDK, the build folder inside the tree;
# KERNEL_CC; and KMOD_OUT, where weft.ko for it goes.
choose_kernel() {
  KIND=$1
  case $KIND in
    stock)
      SDK=/usr/src/weft-linux KERNEL_CC=x86_64-linux-gnu-gcc-14 KMOD_OUT=$WEFT_OUT/kmod
      RELEASE=$(cat "$WEFT_CACHE/kernel.release")
      ;;
    checked | leaks)
      [ -e "$WEFT_CACHE/checked.done" ] ||
        die "the checked kernel has not been made." "Run scripts/setup --checked first (a quarter of an hour, once)."
      SDK=/usr/src/weft-linux-checked KERNEL_CC=clang KMOD_OUT=$WEFT_OUT/kmod-checked
      RELEASE=$(cat "$WEFT_CACHE/kernel-checked.release")
      ;;
    *) die "there is no kernel '$KIND'." "It is one of: stock, checked, leaks." ;;
  esac
}

# setup_for KIND: makes the machine ready for a kernel.
setup_for() {
  case $1 in
    checked | leaks) "$WEFT_ROOT/scripts/setup" --checked ;;
    *) "$WEFT_ROOT/scripts/setup" ;;
  esac
}

# How many times slower than the stock kernel it is, for limits in seconds.
slowness_of() {
  case $1 in
    checked) echo 6 ;;
    leaks) echo 12 ;;
    *) echo 1 ;;
  esac
}

# weft_make TARGET...: the kernel's build, with this repository as the module.
weft_make() {
  tree_env in_tree make -C "$SDK" CC="$KERNEL_CC" M="$WEFT_ROOT" --no-print-directory "$@"
}
