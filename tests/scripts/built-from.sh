#!/bin/bash
# Results name the commit that programs and module were built from, not the one that is
# there when they run.
# checks: 8
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
export VM_SLOWNESS=1
. "$ROOT/tests/vm/lib.sh"
. "$ROOT/scripts/lib/common.sh"
. "$ROOT/scripts/lib/commit.sh"
set +e

WEFT_ROOT=$(mktemp -d)
trap 'rm -rf "$WEFT_ROOT"' EXIT
mkdir "$WEFT_ROOT/programs" "$WEFT_ROOT/module"
echo '/programs' >"$WEFT_ROOT/.gitignore"
in_repository() { git -C "$WEFT_ROOT" -c user.name=test -c user.email=test@localhost "$@"; }
commit() {
  echo "$1" >"$WEFT_ROOT/source"
  in_repository add .gitignore source && in_repository commit -qm "$1"
}
# built PART CMD...
built() { building "$WEFT_ROOT/$1" "${@:2}"; }
# of PART...: the commit that they are of.
of() { (commit_of "${@/#/$WEFT_ROOT/}" 2>&1); }

in_repository init -q
commit first
first=$(source_commit)
built programs true
built module true
is "what was built names its commit" "$(of programs module)" "$first"
commit second
is "still does when there is another one" "$(of programs)" "$first"
built programs true
check "two commits are refused" refuses 1 "from two commits" bash -c ". '$ROOT/scripts/lib/common.sh'; . '$ROOT/scripts/lib/commit.sh'; commit_of '$WEFT_ROOT/programs' '$WEFT_ROOT/module'"
echo third >"$WEFT_ROOT/source"
built module true
is "what is not committed is dirty" "$(of module)" "$(in_repository rev-parse --short=12 HEAD)-dirty"
in_repository checkout -q source
is "and stays so when the changes are gone" "$(of module)" "$(in_repository rev-parse --short=12 HEAD)-dirty"
built module commit fourth
is "sources that change meanwhile are no commit's" "$(of module)" unknown
check "a build that fails ends so" test "$(built module false; echo $?)" = 1
check "and nothing says what it is of" grep -q "nothing says which commit" <<<"$(of module)"
done_testing
