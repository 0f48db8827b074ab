#!/bin/bash
# Scripts can be called from any directory, also from one that the build tree does not have.
# checks: 3
export VM_SLOWNESS=1
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
. "$ROOT/tests/vm/lib.sh"
set +e

# The tree has /tmp, but none of the cache beside this repository's programs.
ELSEWHERE=$(bash -c '. "$1" && mktemp -d "$WEFT_CACHE/elsewhere.XXXXXX"' bash "$ROOT/scripts/lib/common.sh")
trap 'rmdir "$ELSEWHERE"' EXIT

# runs_in FOLDER: where scripts/in-tree runs a command that is called there.
runs_in() { (cd "$1" && "$ROOT/scripts/in-tree" pwd); }

is "a command runs where it was called" "$(runs_in "$ROOT/core")" "$ROOT/core"
is "or in the repository" "$(runs_in "$ELSEWHERE")" "$ROOT"
check "its status is that of the command" refuses 7 "" bash -c 'cd "$1" && "$2" sh -c "exit 7"' bash "$ELSEWHERE" "$ROOT/scripts/in-tree"
done_testing
