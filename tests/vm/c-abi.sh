#!/bin/bash
# The C ABI: installed, found by pkg-config, compiled without a warning, run.
# vm: --meta --nodes 2
# checks: 397
. "$(dirname "$0")/lib.sh"

prefix=/tmp/weft-c
shim=$WEFT_ROOT/shim
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib

compile() {
  local flags
  flags=$(pkg-config --cflags --libs weft) || return
  # shellcheck disable=SC2086
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -pthread "$1" $flags -o "$2"
}
soname() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }
# Symbols with their versions; the version itself is one too.
exported() { nm -D --with-symbol-versions --defined-only "$prefix/lib/libweft.so" | awk '$2 != "A" { print $3 }' | sort; }
declared() {
  sed '/^#/d; s|^ \*.*||; s|/\*.*||' "$prefix/include/weft.h" | grep -oE 'weft_[a-z_]+\(' | sed 's/($/@@WEFT_1.0/' | sort -u
}
# The versions of libweft's symbols that a program was linked with.
linked_with() { nm -D --with-symbol-versions --undefined-only "$1" | sed -n 's/.* weft_[a-z_]*@//p' | sort -u; }
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' '; }

take_base
check "installed" env WEFT_CACHE="${WEFT_OUT%/out/*}" "$WEFT_ROOT/scripts/install-c" "$prefix"
is "soname" "$(soname "$prefix/lib/libweft.so")" libweft.so.1
is "the library exports what the header declares, each symbol with its version" "$(exported)" "$(declared)"
check "the example compiles" compile "$shim/examples/c/hello.c" "$prefix/hello"
is "it needs libweft and libc" "$(needed "$prefix/hello")" "libc.so.6 libweft.so.1 "
is "and the versions that it was linked with" "$(linked_with "$prefix/hello")" WEFT_1.0
is "the example says hello" "$("$prefix/hello" 2>&1 | tail -n 1)" "read back: hello from node 0"
check "the echo compiles" compile "$shim/examples/c/echo.c" "$prefix/echo"
is "the echo comes back" "$("$prefix/echo" 2>&1 | tail -n 1)" "node 0 got 12 bytes: hello, echo"
check "the round to all compiles" compile "$shim/examples/c/fan-out.c" "$prefix/fan-out"
is "all nodes have it" "$("$prefix/fan-out" 2>&1 | tail -n 1)" "2 of 2 nodes have it"

check "the tests compile" compile "$shim/tests/c/calls.c" "$prefix/calls"
"$prefix/calls" || not_ok "every call does what weft.h says"
check "the tests of shared queues compile" compile "$shim/tests/c/queues.c" "$prefix/queues"
timeout "$(seconds 120)" "$prefix/queues" || not_ok "queues are shared as weft.h says"
check "the tests of threads compile" compile "$shim/tests/c/threads.c" "$prefix/threads"
timeout "$(seconds 120)" "$prefix/threads" || not_ok "threads may do what weft.h says"
check "nothing is left behind" within 20 back_to_base
done_testing
