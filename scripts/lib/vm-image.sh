# Makes what the VM boots from, once: the kernel, and an initramfs with a
# static busybox, the modules that the VM loads, the order to load them in, and
# stage 1 of the guest's init. Kernel and modules are decompressed here, because
# that takes seconds under emulation. Sourced after common.sh.

# What a guest needs: its root file system, soft-RoCE, and a network.
VM_MODULES="9pnet_virtio 9p veth bridge virtio_net rdma_rxe ib_uverbs rdma_ucm"
# Those that have to be there before the root file system is.
VM_ROOT_MODULES="9pnet_virtio 9p"

# Sets KERNEL and INITRAMFS to the images for kernel $1, made if there are none.
ensure_images() {
  mkdir -p "$WEFT_CACHE/vm"
  ensure_kernel "$1"
  ensure_initramfs "$1"
}

# Other clones use the same cache at the same time: what was used lately may be in use, and
# another one may delete an image first.
forget_old() { find "$WEFT_CACHE/vm" -ignore_readdir_race -maxdepth 1 -name "$1" -atime +1 -delete || true; }
mark_used() { touch -ac "$1"; }

# QEMU boots an uncompressed kernel through its PVH entry. A kernel packed in
# another way than expected is booted as it is.
ensure_kernel() {
  local release=$1 packed=$WEFT_TREE/usr/lib/modules/$1/vmlinuz
  # A kernel of our own is there unpacked.
  if [ -e "${packed%z}x" ]; then KERNEL=/usr/lib/modules/$release/vmlinux; return; fi
  KERNEL=$WEFT_CACHE/vm/vmlinux-$release
  if [ ! -e "$KERNEL" ] || [ "$packed" -nt "$KERNEL" ]; then
    forget_old 'vmlinux-*'
    if unpack_kernel "$packed" "$KERNEL.$$" 2>/dev/null; then
      mv "$KERNEL.$$" "$KERNEL"
    else
      rm -f "$KERNEL.$$"
      : >"$KERNEL"
    fi
  fi
  mark_used "$KERNEL"
  [ -s "$KERNEL" ] || KERNEL=/usr/lib/modules/$release/vmlinuz
}

# unpack_kernel PACKED IMAGE: the offsets are those of the x86 boot protocol
# (Documentation/arch/x86/boot.rst): setup_sects, payload_offset, payload_length.
unpack_kernel() {
  local start length
  start=$((($(bytes "$1" 0x1f1 1) + 1) * 512 + $(bytes "$1" 0x248 4)))
  # The packed size of the whole is appended to the payload: not part of it.
  length=$(($(bytes "$1" 0x24c 4) - 4))
  tail -c "+$((start + 1))" "$1" | head -c "$length" |
    tree_env chroot "$WEFT_TREE" zstd -dcq >"$2"
  [ "$(head -c 4 "$2" | tail -c 3)" = ELF ]
}

# bytes FILE OFFSET COUNT: a little-endian number.
bytes() { od -An -v -t "u$3" -j "$(($2))" -N "$3" "$1" | tr -d ' '; }

# Sets INITRAMFS.
ensure_initramfs() {
  local release=$1 key
  key=$(cat "$WEFT_ROOT/scripts/lib/vm-image.sh" "$WEFT_ROOT/scripts/lib/vm-init/stage1" | cksum | cut -d' ' -f1)
  INITRAMFS=$WEFT_CACHE/vm/initramfs-$release-$key.cpio
  if [ -s "$INITRAMFS" ]; then mark_used "$INITRAMFS"; return; fi
  forget_old 'initramfs-*.cpio'
  WEFT_BIND=$WEFT_CACHE/vm step "initramfs for the VM" tree_env in_tree \
    bash -c '. "$1"; make_initramfs "$2" "$3"' bash "$WEFT_ROOT/scripts/lib/vm-image.sh" "$release" "$INITRAMFS"
}

# Runs inside the tree: make_initramfs RELEASE IMAGE
make_initramfs() {
  set -euo pipefail
  local release=$1 image=$2 dir
  dir=$(mktemp -d)
  mkdir -p "$dir"/{bin,dev,proc,sys,modules,job,lower,root}
  cp /usr/bin/busybox "$dir/bin/busybox"
  cp "$WEFT_ROOT/scripts/lib/vm-init/stage1" "$dir/init"
  chmod +x "$dir/init"
  # shellcheck disable=SC2086
  copy_modules "$release" "$dir" root.list $VM_ROOT_MODULES
  # shellcheck disable=SC2086
  copy_modules "$release" "$dir" rest.list $VM_MODULES
  (cd "$dir" && find . | cpio -o -H newc --quiet) >"$image.$$"
  mv "$image.$$" "$image"
  rm -rf "$dir"
}

# copy_modules RELEASE DIR LIST MODULE...: decompresses the modules and what
# they depend on into DIR/modules, and writes the new ones, in load order, to
# DIR/modules/LIST.
copy_modules() {
  local release=$1 dir=$2 list=$3 verb path name
  shift 3
  : >"$dir/modules/$list"
  for name in "$@"; do modprobe -S "$release" --show-depends "$name"; done |
    while read -r verb path _; do
      [ "$verb" = insmod ] || continue
      name=${path##*/}
      name=${name%%.ko*}.ko
      [ ! -e "$dir/modules/$name" ] || continue
      case $path in
        *.xz) xz -dc "$path" ;;
        *.zst) zstd -dc "$path" ;;
        *.gz) gzip -dc "$path" ;;
        *) cat "$path" ;;
      esac >"$dir/modules/$name"
      echo "$name" >>"$dir/modules/$list"
    done
}
