# Fetches the stock kernel of Debian's next release, so that a change of the kernel's
# interfaces or of its Rust is found before users have it. Its compilers are newer than
# those that build the rest, so it has a tree of its own. Sourced by scripts/setup,
# after common.sh and kernels.sh.

NEXT_SUITE=testing
# What building a module takes; the C compiler comes with the kernel's headers.
NEXT_TOOLS="rustc rust-src rustfmt rust-clippy bindgen clang make bc bison flex libelf-dev libssl-dev libdw-dev xz-utils zstd kmod
  python3-minimal ca-certificates"

# The mirror is the one that the other tree came from.
make_next_tree() {
  local mirror
  mirror=$(awk '$1 == "deb" { print $2; exit }' "$WEFT_TREE/etc/apt/sources.list")
  rm -rf "$NEXT_TREE.part"
  unshare --mount --propagation private -- debootstrap --variant=minbase "$NEXT_SUITE" "$NEXT_TREE.part" "$mirror"
  configure_tree "$NEXT_TREE.part"
  mv "$NEXT_TREE.part" "$NEXT_TREE"
}

# in_next CMD...: what makes a kernel ready in the other tree does so in this one.
in_next() { WEFT_TREE=$NEXT_TREE "$@"; }

install_next_tools() {
  ready_for_packages
  # shellcheck disable=SC2086
  apt_in_tree install $NEXT_TOOLS
}

# The VM's root is the other tree, and so is what its images are made of.
share_next_modules() {
  local release
  release=$(cat "$WEFT_CACHE/kernel-next.release")
  rm -rf "$WEFT_TREE/usr/lib/modules/$release"
  cp -al "$NEXT_TREE/usr/lib/modules/$release" "$WEFT_TREE/usr/lib/modules/$release"
}

setup_next() {
  local begin=$SECONDS file=$WEFT_CACHE/kernel-next.release
  if [ -e "$WEFT_CACHE/next.done" ]; then
    say "the next release's kernel is there already ($(cat "$file"))"
    return 0
  fi
  [ -d "$NEXT_TREE" ] || step "Debian $NEXT_SUITE tree" make_next_tree
  step "the next release's compilers" in_next install_next_tools
  step "the next release's kernel and its headers" in_next install_kernel "$NEXT_SUITE" "$file"
  step "SDK of the next release's kernel" in_next prepare_sdk "$(cat "$file")"
  step "modules of the next release's kernel" share_next_modules
  touch "$WEFT_CACHE/next.done"
  say "the next release's kernel is ready after $((SECONDS - begin)) s: $(cat "$file")"
}
