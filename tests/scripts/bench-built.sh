#!/bin/bash
# scripts/bench --built measures what scripts/build has built, MPI's side too, whatever the
# sources are by now; and refuses what is of two commits. scripts/build says which commit all
# programs are of, as long as no other one of them is.
# checks: 9
. "$(dirname "$0")/lib/scratch.sh"

scratch_with bench build
mkdir -p "$SCRATCH/bin" "$SCRATCH/cache/tree/usr/bin"
touch "$SCRATCH/cache/tree/usr/bin/"{mpicc,mpirun}.{openmpi,mpich}
# The build tree is this machine, whose compilers and benchmarks only say what they are called for.
cat >>"$SCRATCH/scripts/lib/commit.sh" <<'END'
tree_env() { "$@"; }
in_tree() { "$@"; }
END
cat >"$SCRATCH/bin/cargo" <<'END'
#!/bin/bash
mkdir -p "$CARGO_TARGET_DIR/release"
printf '#!/bin/sh\necho "measured $1 of $WEFT_COMMIT"\n' >"$CARGO_TARGET_DIR/release/weft-bench"
chmod +x "$CARGO_TARGET_DIR/release/weft-bench"
END
for name in openmpi mpich; do
  printf '#!/bin/sh\necho %s >>"$COMPILED"\n' "$name" >"$SCRATCH/bin/mpicc.$name"
done
chmod +x "$SCRATCH/bin/"*
export PATH=$SCRATCH/bin:$PATH WEFT_CACHE=$SCRATCH/cache COMPILED=$SCRATCH/compiled

printf '/%s\n' bin cache compiled out >"$SCRATCH/.gitignore"
in_repository() { git -C "$SCRATCH" -c user.name=test -c user.email=test@localhost "$@"; }
# commit WORD: sources that have changed. Prints their commit as results name it.
commit() {
  echo "$1" >"$SCRATCH/source"
  in_repository add . && in_repository commit -qm "$1" && in_repository rev-parse --short=12 HEAD
}
# rdmc OPTION...: the last line that the benchmark says over shared memory.
rdmc() { "$SCRATCH/scripts/bench" rdmc --fabrics shm "$@" 2>&1 | tee "$SCRATCH/out" | tail -n 1; }
# all_of: the commit that all programs are of.
all_of() { cat "$SCRATCH/cache/out/"*/all-programs/built-from; }
compiled() { tr '\n' ' ' <"$COMPILED"; }

in_repository init -q
first=$(commit first)
check "all is built" "$SCRATCH/scripts/build" --programs
is "MPI's side too, by both compilers" "$(compiled)" "openmpi mpich "
is "all programs are of one commit" "$(all_of)" "$first"
WEFT_PACKAGES=weft-cp "$SCRATCH/scripts/build" --programs 2>/dev/null
is "one that is built again is too" "$(all_of)" "$first"
second=$(commit second)
is "what is built is measured" "$(rdmc --built)" "measured rdmc of $first"
is "and nothing is built for it" "$(compiled)" "openmpi mpich "
is "without --built the sources are" "$(rdmc)" "measured rdmc of $second"
rm -r "$SCRATCH/cache/out/"*/mpi
commit third >/dev/null
rdmc --built >/dev/null
check "MPI's side of another commit is refused" grep -q "built from two commits" "$SCRATCH/out"
WEFT_PACKAGES=weft-cp "$SCRATCH/scripts/build" --programs 2>/dev/null
check "with a program of another commit all are of none" refuses 1 "No such file" cat "$SCRATCH/cache/out/"*/all-programs/built-from
done_testing
