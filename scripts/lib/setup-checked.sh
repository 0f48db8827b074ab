# Builds the checked kernel and installs it into the tree. Sourced by scripts/setup,
# after common.sh.

CHECKED_CONFIG=$WEFT_ROOT/scripts/lib/checked-kernel.config
# Without these the kernel would boot and see nothing: Kconfig drops in silence what it
# cannot have.
CHECKED_OPTIONS="RUST MODULES KASAN KASAN_VMALLOC PROVE_LOCKING PROVE_RCU DEBUG_ATOMIC_SLEEP DEBUG_KMEMLEAK
  DEBUG_OBJECTS DEBUG_OBJECTS_WORK FAULT_INJECTION FAILSLAB FAIL_PAGE_ALLOC FAULT_INJECTION_USERCOPY
  FAULT_INJECTION_DEBUG_FS FAULT_INJECTION_STACKTRACE_FILTER USERFAULTFD RDMA_RXE INFINIBAND_USER_ACCESS
  INFINIBAND_ADDR_TRANS NET_9P_VIRTIO 9P_FS VETH BRIDGE NET_SCH_NETEM NET_SCH_PRIO NET_SCH_INGRESS NET_CLS_U32 NET_ACT_GACT MEMCG"

# What decides whether it has to be built anew: its configuration, its source, and how
# that is done.
checked_stamp() {
  { cat "$CHECKED_CONFIG" "$WEFT_CACHE/kernel.release"; declare -f make_checked_kernel checked_make install_checked; } |
    cksum | cut -d' ' -f1
}

make_checked_kernel() {
  local src=$WEFT_TREE/usr/src/weft-linux-checked
  rm -rf "$src"
  mkdir -p "$src"
  tar -C "$src" --strip-components=1 -xf "$WEFT_TREE"/usr/src/linux-source-*.tar.xz
  cp "$CHECKED_CONFIG" "$src/arch/x86/configs/weft_checked_defconfig"
  checked_make weft_checked_defconfig
  assert_options "$src/.config"
  checked_make -j"$(nproc)" bzImage modules
  install_checked "$src"
}

checked_make() { tree_env in_tree make -C /usr/src/weft-linux-checked CC=clang "$@"; }

assert_options() {
  local option missing=''
  for option in $CHECKED_OPTIONS; do
    grep -qx "CONFIG_$option=[ym]" "$1" || missing+=" $option"
  done
  [ -z "$missing" ] || { echo "lost in configuration:$missing"; return 1; }
}

# The image is booted unpacked, and lists of modules that are built in are all that
# there is of modules.
install_checked() {
  local src=$1 release
  release=$(cat "$src/include/config/kernel.release")
  checked_make modules_install INSTALL_MOD_STRIP=1
  cp "$src/vmlinux" "$WEFT_TREE/usr/lib/modules/$release/vmlinux"
  tree_env in_tree strip --strip-debug "/usr/lib/modules/$release/vmlinux"
  printf '%s\n' "$release" >"$WEFT_CACHE/kernel-checked.release"
}

setup_checked() {
  local stamp
  stamp=$(checked_stamp)
  if [ "$(cat "$WEFT_CACHE/checked.done" 2>/dev/null)" = "$stamp" ]; then
    say "the checked kernel is there already ($(cat "$WEFT_CACHE/kernel-checked.release"))"
    return 0
  fi
  rm -f "$WEFT_CACHE/checked.done"
  step "checked kernel (a quarter of an hour)" make_checked_kernel
  printf '%s\n' "$stamp" >"$WEFT_CACHE/checked.done"
}
