# A repository of its own for tests of scripts that build, measure or run machines: they find
# others in the place of those that they call. Sourced, never executed.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
export VM_SLOWNESS=1
. "$ROOT/tests/vm/lib.sh"
set +e

SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

# scratch_with SCRIPT...: SCRATCH has these scripts and what they source, on a machine that was
# set up.
scratch_with() {
  mkdir -p "$SCRATCH/scripts" "$SCRATCH/cache"
  cp -r "$ROOT/scripts/lib" "${@/#/$ROOT/scripts/}" "$SCRATCH/scripts/"
  touch "$SCRATCH/cache/setup.done"
}
