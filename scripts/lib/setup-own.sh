# Builds a kernel that looks for bugs (kernels.sh: checked, leaks) and installs it into
# the tree. Sourced by scripts/setup, after common.sh.

OWN_CONFIGS=$WEFT_ROOT/scripts/lib/own-kernels

own_config() { cat "$OWN_CONFIGS/guest.config" "$OWN_CONFIGS/$1.config"; }

# own_stamp KIND: changes when the kernel has to be built anew, because its configuration,
# its source or the way of building it has changed.
own_stamp() {
  { own_config "$1"; cat "$WEFT_CACHE/kernel.release"; declare -f make_own_kernel own_make install_own; } |
    cksum | cut -d' ' -f1
}

make_own_kernel() {
  local kind=$1 src=$WEFT_TREE/usr/src/weft-linux-$1
  rm -rf "$src"
  mkdir -p "$src"
  tar -C "$src" --strip-components=1 -xf "$WEFT_TREE"/usr/src/linux-source-*.tar.xz
  own_config "$kind" >"$src/arch/x86/configs/weft_defconfig"
  own_make "$kind" weft_defconfig
  assert_options "$kind" "$src/.config"
  own_make "$kind" -j"$(nproc)" bzImage modules
  install_own "$kind" "$src"
}

own_make() {
  local kind=$1
  shift
  tree_env in_tree make -C "/usr/src/weft-linux-$kind" CC=clang "$@"
}

# assert_options KIND CONFIG: Kconfig drops in silence what it cannot have. The kernel would
# boot without it, and see nothing.
assert_options() {
  local missing
  missing=$(own_config "$1" | grep '^CONFIG_' | grep -vxFf "$2") || return 0
  echo "lost in configuration: ${missing//$'\n'/ }"
  return 1
}

# The image is booted unpacked, and lists of modules that are built in are all that
# there is of modules.
install_own() {
  local kind=$1 src=$2 release
  release=$(cat "$src/include/config/kernel.release")
  own_make "$kind" modules_install INSTALL_MOD_STRIP=1
  cp "$src/vmlinux" "$WEFT_TREE/usr/lib/modules/$release/vmlinux"
  tree_env in_tree strip --strip-debug "/usr/lib/modules/$release/vmlinux"
  printf '%s\n' "$release" >"$WEFT_CACHE/kernel-$kind.release"
}

# setup_own KIND
setup_own() {
  local kind=$1 stamp done_file=$WEFT_CACHE/$1.done
  stamp=$(own_stamp "$kind")
  if [ "$(cat "$done_file" 2>/dev/null)" = "$stamp" ]; then
    say "the kernel '$kind' is there already ($(cat "$WEFT_CACHE/kernel-$kind.release"))"
    return 0
  fi
  rm -f "$done_file"
  step "kernel '$kind' (a quarter of an hour)" make_own_kernel "$kind"
  printf '%s\n' "$stamp" >"$done_file"
}
