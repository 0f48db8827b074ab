#!/bin/bash
# scripts/test has to notice a check that fails, a test that says nothing, ends too soon
# or crashes, and a name that is no test's.
# checks: 17
export VM_SLOWNESS=1
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
. "$ROOT/tests/vm/lib.sh"

# counted PLANNED SCRIPT: what scripts/test says in the end of a test that is this script.
counted() {
  WEFT_CACHE=$SCRATCH bash -c '. "$0/scripts/lib/common.sh" && . "$0/scripts/lib/results.sh"
    count test count_tap "$1" sh -c "$2" >/dev/null; summary | tail -n 1' "$ROOT" "$@"
}

# said_of SCRIPT: what the summary says of a failure.
said_of() {
  WEFT_CACHE=$SCRATCH bash -c '. "$0/scripts/lib/common.sh" && . "$0/scripts/lib/results.sh"
    count test count_tap 2 sh -c "$1" >/dev/null; summary' "$ROOT" "$1" | sed -n '/^What failed/,/^$/s/^  //p' | tail -n 1
}

SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

is "as many checks as were planned pass" "$(counted 2 'echo ok a; echo ok b')" "2 passed, 0 failed"
is "one that was skipped is one of them" "$(counted 2 'echo ok a; echo "ok b # SKIP why"')" "1 passed, 0 failed, 1 skipped"
is "one that fails is counted" "$(counted 2 'echo ok a; echo not ok b; exit 1')" "1 passed, 1 failed"
is "one too few is a failure" "$(counted 3 'echo ok a; echo ok b')" "2 passed, 1 failed"
is "so is one too many" "$(counted 1 'echo ok a; echo ok b')" "2 passed, 1 failed"
is "and no number at all" "$(counted none 'echo ok a')" "1 passed, 1 failed"
is "and silence" "$(counted 0 true)" "0 passed, 1 failed"
is "and a bad end after all checks" "$(counted 1 'echo ok a; exit 3')" "1 passed, 1 failed"
is "and a crash in the middle" "$(counted 2 'echo ok a; kill -SEGV $$; echo ok b')" "1 passed, 1 failed"
is "the summary says which check failed, and why" "$(said_of 'echo ok a; echo not ok b: no room; exit 1')" "test: not ok b: no room"
is "and which of cargo's" "$(said_of 'echo ok a; echo test c ... FAILED; exit 1')" "test: test c ... FAILED"
is "and what the kernel reported" "$(said_of 'echo ok a; echo "the kernel reported a bug: WARNING: x"; exit 86')" "test: the kernel reported a bug: WARNING: x"
is "and how a test ended that made too few checks" "$(said_of 'echo ok a; exit 86')" "test: 1 checks ran, '# checks: 2' was planned; it ended with status 86"
is "and a program that is not there" "$(counted 1 'no-such-program')" "0 passed, 1 failed"
is "a test that begins again counts once" "$(counted 2 'echo ok a; echo not ok b; echo "[weft] the test begins again: why"; echo ok a; echo ok b')" "2 passed, 0 failed"
check "a name that is no test's is an error" refuses 1 "there is no test no-such-test" "$ROOT/scripts/test" --only no-such-test
check "so is one of a file that is none" refuses 1 "there is no test lib" "$ROOT/scripts/test" --only lib
done_testing
