#!/bin/bash
# scripts/bench NAME --help is what the benchmark itself says, and runs no machine.
# checks: 7
. "$(dirname "$0")/lib/scratch.sh"
export CALLS=$SCRATCH/calls

# A repository whose build makes a program that only says how it is called, or that fails.
scratch_with bench
echo 'in_tree() { "$@"; }' >>"$SCRATCH/scripts/lib/common.sh"
cat >"$SCRATCH/weft-bench" <<'END'
#!/bin/bash
echo "weft-bench $*"
[ "$1" != "${BROKEN:-}" ]
END
cat >"$SCRATCH/scripts/build" <<END
#!/bin/bash
echo "build \$*" >>"\$CALLS"
mkdir -p "\$WEFT_OUT/target/release" && cp "$SCRATCH/weft-bench" "\$WEFT_OUT/target/release"
END
printf '#!/bin/bash\necho vm >>"$CALLS"\n' >"$SCRATCH/scripts/vm"
chmod +x "$SCRATCH/weft-bench" "$SCRATCH/scripts/"{build,vm}

# bench ARG...: what it says, and its status.
bench() {
  : >"$CALLS"
  WEFT_CACHE=$SCRATCH/cache "$SCRATCH/scripts/bench" "$@" 2>&1
  echo $?
}

is "a benchmark says what it takes" "$(bench connect --help | tr '\n' ' ')" "weft-bench connect --help 0 "
is "the programs are built for that, and no machine runs" "$(<"$CALLS")" "build --programs"
is "one that is built says it at once" "$(bench connect --built -h | tr '\n' ' ')$(<"$CALLS")" "weft-bench connect --help 0 "
is "other options make no difference" "$(bench fanout --vm "--smp 4" --peers 3 --help | head -n 1)" "weft-bench fanout --help"
is "a name that weft-bench does not know is refused" "$(BROKEN=sail bench sail --help | tail -n 1)" 1
is "without a name scripts/bench says how it is called itself" "$(bench --help | grep -c '^Usage\|^0')" 2
check "which nothing is built for" test ! -s "$CALLS"
done_testing
